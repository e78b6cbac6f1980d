/** Tabs: arrows go from one to the next. */

export class Tabs {
  #tabs;
  #onShow;

  constructor(list, onShow) {
    this.#tabs = [...list.querySelectorAll('[role="tab"]')];
    this.#onShow = onShow;
    for (const tab of this.#tabs) tab.addEventListener("click", () => this.show(tab.dataset.tab));
    list.addEventListener("keydown", (event) => this.#onKey(event));
  }

  show(name) {
    for (const tab of this.#tabs) {
      const chosen = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    this.#onShow(name);
  }

  #onKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const here = this.#tabs.indexOf(document.activeElement);
    const next = this.#tabs.at((here + step) % this.#tabs.length);
    next.focus();
    this.show(next.dataset.tab);
  }
}
