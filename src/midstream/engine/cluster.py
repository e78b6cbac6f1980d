"""The executors of a Spark cluster and how to have a task run on a certain one.

Spark has no API for the latter. It asks a `PartitionCoalescer` where groups of partitions would best run, and ours (the
one class of `jvm/`) leaves partitions alone and answers with a table. A wish, not an order: when the executor is gone,
or busy for longer than `spark.locality.wait`, the task runs elsewhere, and is right there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

from midstream.engine.connect.session import is_remote
from midstream.placement.assign import Executor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CLASS = "midstream.Placement"
_DRIVER = "driver"


class Cluster:
    """The executors of a session's application. `missing` says why nothing can be placed, if so."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.missing: str | None = None
        if is_remote(spark):
            self.application = str(spark.conf.get("spark.app.id"))
            self.missing = "a server of Spark Connect places tasks by itself"
            return
        context = spark.sparkContext
        self.application = str(context.applicationId)
        master = str(context.master)
        if master.startswith("local") and not master.startswith("local-cluster"):
            self.missing = "Spark runs in one process here, with nothing to choose from"
            return
        gateway: Any = context._gateway
        self._gateway = gateway
        # Asked for once: to find a class by its name, Py4J looks for each of its packages in every jar there is.
        self._object, self._option = gateway.jvm.java.lang.Object, gateway.jvm.scala.Option
        self._make = self._load()

    def executors(self) -> list[Executor]:
        """Those that run now, by id."""
        if self.missing:
            return []
        known = self._spark.sparkContext._jsc.sc().statusStore().executorList(True)
        found = [known.apply(i) for i in range(known.size())]
        each = [Executor(e.id(), e.hostPort().rpartition(":")[0]) for e in found if e.id() != _DRIVER]
        return sorted(each, key=lambda executor: (len(executor.id), executor.id))

    def placed(self, frame: DataFrame, locations: Sequence[str], schema: StructType | None = None) -> DataFrame:
        """The same rows in the same partitions, of which the task of number i is to run at `locations[i]`. A schema may
        be given that differs in what can be null."""
        arguments = self._gateway.new_array(self._object, 1)
        arguments[0] = "\n".join(locations)
        option = self._option.apply(self._make.newInstance(arguments))
        rows = frame._jdf.queryExecution().toRdd().coalesce(len(locations), False, option, None)
        session = frame.sparkSession
        of_rows = frame._jdf.schema() if schema is None else session._jsparkSession.parseDataType(schema.json())
        return type(frame)(session._jsparkSession.internalCreateDataFrame(rows, of_rows, False), session)

    def end(self, executors: Sequence[str]) -> None:
        """Ask the cluster to end executors, and not to replace them."""
        jvm = self._gateway.jvm
        ids = jvm.java.util.ArrayList()
        for id_ in executors:
            ids.add(id_)
        self._spark.sparkContext._jsc.sc().killExecutors(jvm.PythonUtils.toSeq(ids))

    def _load(self) -> Any:
        """The constructor of our class: given to executors as a jar, and to the driver by a class loader of its own."""
        jvm = self._gateway.jvm
        with as_file(files("midstream.jvm") / "midstream-placement.jar") as jar:
            context = self._spark.sparkContext._jsc.sc()
            if not any(str(jar.name) in url for url in context.listJars().mkString("\n").split("\n")):
                context.addJar(str(jar))
            urls = self._gateway.new_array(jvm.java.net.URL, 1)
            urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
        loader = jvm.java.net.URLClassLoader.newInstance(urls, jvm.Thread.currentThread().getContextClassLoader())
        return loader.loadClass(_CLASS).getConstructors()[0]
