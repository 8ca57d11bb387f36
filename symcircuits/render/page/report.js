"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Filters: a row is shown when it has every chosen value.
  for (const set of all("[data-filter]")) {
    const choices = all("select", set), output = set.querySelector("output"), name = set.dataset.filter;
    const rows = all(`[data-in="${name}"]`), counted = rows.filter((row) => row.dataset.counted !== undefined);
    const apply = () => {
      for (const row of rows) {
        row.hidden = !choices.every((c) => c.value === "" || row.dataset[c.name].split(" ").includes(c.value));
      }
      const left = counted.filter((row) => !row.hidden);
      const sum = left.reduce((total, row) => total + Number(row.dataset.counted), 0);
      const more = set.dataset.sum ? `, together ${Number(sum.toPrecision(4))} ${set.dataset.sum}` : "";
      output.textContent = `${left.length} of ${counted.length} terms${more}`;
    };
    for (const choice of choices) choice.addEventListener("change", apply);
    set.querySelector("button").addEventListener("click", () => {
      for (const choice of choices) choice.value = "";
      apply();
    });
    set.hidden = false;
    apply();
  }

  // One head at a time, chosen by the list or by the address of the page (#head-L1H0).
  const chooser = document.getElementById("head-choice"), heads = all("section[data-head]");
  if (chooser) {
    const show = () => {
      for (const section of heads) section.hidden = section.dataset.head !== chooser.value;
    };
    const follow = () => {
      const section = heads.find((s) => `#${s.id}` === location.hash);
      if (!section) return;
      chooser.value = section.dataset.head;
      show();
      section.scrollIntoView();
      section.querySelector("h3").focus();
    };
    chooser.addEventListener("change", show);
    window.addEventListener("hashchange", follow);
    chooser.closest("[hidden]")?.removeAttribute("hidden");
    show();
    follow();
  }

  // The value of a cell of a heat map: by pointer, or by the arrow keys when the map has the focus.
  for (const svg of all("svg[data-values]")) {
    const [left, top, size] = svg.dataset.at.split(" ").map(Number);
    const rows = JSON.parse(svg.dataset.rows), columns = JSON.parse(svg.dataset.columns);
    const [rowName, columnName] = svg.dataset.names.split("|");
    const cursor = svg.querySelector(".cursor"), output = svg.parentElement.querySelector(".read");
    let values = null, at = null;
    const read = (i, j) => {
      values ??= svg.dataset.values.split(" ");
      at = [i, j];
      cursor.setAttribute("x", left + size * j);
      cursor.setAttribute("y", top + size * i);
      cursor.setAttribute("visibility", "visible");
      const value = values[i * columns.length + j];
      const said = value === "-" ? "masked" : value;
      output.textContent = `${rowName} ${i} ${rows[i]}, ${columnName} ${j} ${columns[j]}: ${said}`;
    };
    const point = (event) => {
      const box = svg.getBoundingClientRect(), unit = box.width / svg.viewBox.baseVal.width;
      const j = Math.floor(((event.clientX - box.left) / unit - left) / size);
      const i = Math.floor(((event.clientY - box.top) / unit - top) / size);
      if (i >= 0 && j >= 0 && i < rows.length && j < columns.length) read(i, j);
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!step || !rows.length || !columns.length) return;
      event.preventDefault();
      const [i, j] = at ? [at[0] + step[0], at[1] + step[1]] : [0, 0];
      read(Math.min(Math.max(i, 0), rows.length - 1), Math.min(Math.max(j, 0), columns.length - 1));
      output.setAttribute("aria-live", "polite");
    });
    svg.addEventListener("blur", () => cursor.setAttribute("visibility", "hidden"));
  }

  // A map over the text: the token that is pointed at, or has the focus, colours what it looks at.
  for (const box of all("[data-looks]")) {
    const maps = all("svg[data-values]", box.parentElement), choice = box.querySelector("select");
    const tokens = all("button", box), output = box.querySelector("output");
    const look = (i) => {
      const values = maps[choice.value].dataset.values.split(" ").slice(i * tokens.length, (i + 1) * tokens.length);
      const largest = Math.max(...maps[choice.value].dataset.values.split(" ").map((v) => Math.abs(Number(v)) || 0)) || 1;
      const said = [];
      tokens.forEach((token, j) => {
        const value = Number(values[j]) || 0, part = Math.round((100 * Math.abs(value)) / largest);
        const colour = `var(--bar-${value < 0 ? "m" : "p"})`;
        token.style.background = part ? `color-mix(in srgb, ${colour} ${part}%, var(--back))` : "";
        token.classList.toggle("query", i === j);
        said.push([Math.abs(value), `${values[j]} on ${j} (${token.textContent})`]);
      });
      const most = said.sort((a, b) => b[0] - a[0]).filter((one) => one[0] > 0).slice(0, 3).map((one) => one[1]);
      output.textContent = `${i} (${tokens[i].textContent}): ${most.join(", ") || "nothing"}`;
    };
    let at = tokens.length - 1;
    tokens.forEach((token, i) => {
      for (const kind of ["pointerenter", "focus"]) token.addEventListener(kind, () => look((at = i)));
    });
    choice.addEventListener("change", () => look(at));
    box.hidden = false;
    look(at);
  }

  // On paper nothing is folded away.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    for (const part of folded) part.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
  });
})();
