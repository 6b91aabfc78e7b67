"use strict";

// Tables that can be searched, filtered and sorted.  Names come from models and may hold anything:
// they reach the page as text only.

const PAGE_ROWS = 100;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const byId = (id) => document.getElementById(id);
const count = (number) => Math.round(number).toLocaleString("en");
const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "");

function bytes(number) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(number) >= 1000 && unit < units.length - 1 && (unit > 0 || number >= 10000)) {
    number /= 1000;
    unit += 1;
  }
  return unit ? `${number.toFixed(1)} ${units[unit]}` : `${count(number)} bytes`;
}

class Table {
  // columns: {label, value(row), text(row)?, number?, name?}; rows: numbers or records.
  // options: {caption, search(row) -> text, filter: {label, names, value(row)}, sort, select(row), selected(row)}
  constructor(host, columns, rows, options = {}) {
    Object.assign(this, { host, columns, rows, options });
    this.sort = options.sort ?? null;
    this.limit = PAGE_ROWS;
    this.words = [];
    this.choice = "";
    this.texts = new Map();
    host.replaceChildren(...this.controls());
    this.body = element("tbody");
    this.heads = columns.map((column, index) => this.head(column, index));
    const caption = element("caption", {}, options.caption);
    const table = element("table", {}, caption, element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.more = element("button", { type: "button", class: "more", onclick: () => this.showMore() });
    host.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.caption }, table), this.more);
    this.draw();
  }

  controls() {
    const { search, filter, caption } = this.options;
    if (!search) return [];
    const box = element("input", { type: "search", placeholder: "Search", "aria-label": `Search ${caption}` });
    let timer = 0;
    box.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.find(box.value), 80);
    });
    this.told = element("span", { class: "count", role: "status" });
    const parts = [box];
    if (filter) {
      const names = [...filter.names].sort();
      const select = element("select", { "aria-label": filter.label });
      select.append(element("option", { value: "" }, filter.label));
      select.append(...names.map((name) => element("option", { value: name }, name)));
      select.addEventListener("change", () => this.choose(select.value));
      parts.push(select);
      this.select = select;
    }
    this.box = box;
    return [element("div", { class: "controls" }, ...parts, this.told)];
  }

  head(column, index) {
    const button = element("button", { type: "button", onclick: () => this.sortBy(index) }, column.label);
    return element("th", { scope: "col", class: column.number ? "number" : "" }, button);
  }

  find(text) {
    this.words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.limit = PAGE_ROWS;
    this.draw();
  }

  choose(name) {
    this.choice = name;
    this.limit = PAGE_ROWS;
    this.draw();
  }

  sortBy(index) {
    const numeric = this.columns[index].number;
    const again = this.sort && this.sort.index === index;
    this.sort = { index, down: again ? !this.sort.down : Boolean(numeric) };
    this.draw();
  }

  showMore() {
    this.limit += 5 * PAGE_ROWS;
    this.draw();
  }

  replace(rows) {
    this.rows = rows;
    this.texts.clear();
    this.draw();
  }

  text(row) {
    let found = this.texts.get(row);
    if (found === undefined) {
      found = this.options.search(row).toLowerCase();
      this.texts.set(row, found);
    }
    return found;
  }

  matching() {
    const { filter } = this.options;
    const rows = this.rows.filter(
      (row) =>
        (!this.choice || filter.value(row) === this.choice) &&
        this.words.every((word) => this.text(row).includes(word)),
    );
    if (!this.sort) return rows;
    const value = this.columns[this.sort.index].value;
    const way = this.sort.down ? -1 : 1;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    const keyed = rows.map((row, place) => [value(row), place, row]);
    keyed.sort((a, b) => way * compare(a[0], b[0]) || a[1] - b[1]);
    return keyed.map(([, , row]) => row);
  }

  draw() {
    const rows = this.matching();
    this.heads.forEach((head, index) => {
      const sorted = this.sort && this.sort.index === index;
      head.setAttribute("aria-sort", sorted ? (this.sort.down ? "descending" : "ascending") : "none");
    });
    this.body.replaceChildren(...rows.slice(0, this.limit).map((row) => this.row(row)));
    if (this.told) this.told.textContent = `${count(rows.length)} of ${count(this.rows.length)}`;
    const left = rows.length - this.limit;
    this.more.hidden = left <= 0;
    this.more.textContent = `Show more (${count(Math.max(left, 0))} left)`;
  }

  row(row) {
    const { select, selected } = this.options;
    const cells = this.columns.map((column) => {
      const text = String(column.text ? column.text(row) : column.value(row));
      const kind = column.number ? "number" : column.name ? "name" : "";
      if (!column.name || !select || selected(row) < 0) return element("td", { class: kind }, text);
      const button = element("button", { type: "button", onclick: () => select(row) }, text || "(no name)");
      return element("td", { class: kind }, button);
    });
    const made = element("tr", {}, ...cells);
    if (selected) made.dataset.op = selected(row);
    if (selected && selected(row) >= 0 && selected(row) === state.op) made.className = "selected";
    return made;
  }
}
