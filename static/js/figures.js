// Draws the figures of a page. Plotly is loaded when the first figure scrolls into view. Colors are names of CSS custom
// properties, so that figures follow the light or dark scheme. Captions, tables, and links are part of the page and work
// without this script.
(() => {
  "use strict";
  const script = document.currentScript;
  const NARROW = 560;
  const WIDE = 1000;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const probe = document.createElement("i");
  let bundle;

  // The Content-Security-Policy forbids style attributes and elements. Set Plotly's style attributes as properties
  // instead, and drop its style sheet for maps, which is not used.
  function allowStyles() {
    const append = document.head.appendChild;
    document.head.appendChild = (node) => (node.tagName === "STYLE" ? node : append.call(document.head, node));
    const plain = Element.prototype.setAttribute;
    Element.prototype.setAttribute = function (name, value) {
      if (name === "style") this.style.cssText = value;
      else plain.call(this, name, value);
    };
  }

  function plotly() {
    bundle ??= new Promise((resolve, reject) => {
      allowStyles();
      const element = document.createElement("script");
      element.src = script.dataset.bundle;
      element.onload = () => {
        // Plotly would warn of each bar of a heat map: it takes values on a color scale for invalid colors.
        window.Plotly.setPlotConfig({ logging: 0 });
        resolve(window.Plotly);
      };
      element.onerror = reject;
      document.head.append(element);
    });
    return bundle;
  }

  function color(name) {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  }

  // Replace each `var(--name)` with its current color. Do not change texts.
  function colored(value, key = "") {
    if (typeof value === "string") {
      const found = /color(scale)?$/.test(key) && /^var\((--[\w-]+)\)$/.exec(value);
      return found ? color(found[1]) : value;
    }
    if (Array.isArray(value)) return value.map((inner) => colored(inner, key));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, colored(inner, name)]));
    return value;
  }

  // Escape text that Plotly would read as markup.
  const plain = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);

  const level = (width) => (width < NARROW ? "narrow" : width < WIDE ? "" : "wide");

  function looks(width, isDouble) {
    const narrow = width < NARROW;
    const axis = {
      gridcolor: color("--rule"), linecolor: color("--rule-strong"), tickcolor: color("--rule-strong"),
      zerolinecolor: color("--rule-strong"), automargin: true, fixedrange: true, title: { standoff: 10, font: { size: narrow ? 12 : 12.5, color: color("--ink-soft") } },
      tickfont: { color: color("--ink-soft") },
    };
    return {
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 12 : 12.5, color: color("--ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false, hovermode: "closest",
      margin: { l: 8, r: narrow ? 8 : 16, t: 8, b: 8 }, height: 420,
      xaxis: axis, yaxis: axis,
      legend: {
        orientation: "h", x: 0, xref: "container", y: 1, yref: "container", yanchor: "top", itemclick: false,
        itemdoubleclick: false, maxheight: 1, ...(narrow && isDouble ? { entrywidth: width / 2 - 76 } : {}),
      },
      hoverlabel: {
        bgcolor: color("--raised"), bordercolor: color("--rule-strong"), align: "left",
        font: { color: color("--ink"), family: getComputedStyle(document.body).fontFamily },
      },
    };
  }

  // Return Plotly's data and layout of a figure, for a width in pixels.
  function specification(found, width) {
    const pick = (one) => ({ ...one, ...one.meta?.[level(width)] });
    const names = found.data.filter((trace) => trace.name && trace.showlegend !== false).map((trace) => trace.name);
    const isDouble = names.length > 3 && names.every((name) => name.length * 6.1 < width / 2 - 76); // Others need a line each on phones.
    const layout = { ...pick(found.layout), template: { layout: looks(width, isDouble) } };
    // On phones, a legend takes a line per entry, or per two: the figure grows, and its rows keep their height.
    if (width < NARROW && layout.height && names.length > 1) layout.height += 19 * Math.ceil(names.length / (isDouble ? 2 : 1));
    return { data: colored(found.data.map(pick)), layout: colored(layout) };
  }

  // Return the same for a downloaded picture, with a title and a background. `legend` is the height of the legend in pixels.
  function takenAway(found, width, legend) {
    const { data, layout } = specification(found, width);
    const usual = layout.template.layout;
    const head = 64;
    const height = (layout.height ?? usual.height) + head;
    const subtitle = { text: plain([found.subtitle, location.host].filter(Boolean).join(" · ")), font: { size: 12 } };
    const title = { text: plain(found.title), subtitle, x: 0, xref: "container", y: 1, yref: "container", yanchor: "top", pad: { t: 16, l: 16 } };
    const margin = { ...usual.margin, ...layout.margin, t: head + (legend ? legend + 8 : 8), l: 16, r: 24, b: 16 };
    usual.legend = { ...usual.legend, y: 1 - head / height, x: 12 / width };
    return { data, layout: { ...layout, height, title, margin, paper_bgcolor: color("--paper") } };
  }

  const SETTINGS = { displayModeBar: false, responsive: true, showTips: false, doubleClick: false };

  // Open the page of a system or query when its point is clicked.
  function lead(plot) {
    if (plot.leads) return;
    plot.leads = true;
    const target = ({ points: [point] }) => point.data.meta?.links?.[point.pointNumber];
    const pointing = (on) => plot.querySelectorAll(".drag").forEach((layer) => layer.classList.toggle("cursor-pointer", on));
    plot.on("plotly_click", (event) => { if (target(event)) location.assign(target(event)); });
    plot.on("plotly_hover", (event) => pointing(Boolean(target(event))));
    plot.on("plotly_unhover", () => pointing(false));
  }

  async function draw(figure) {
    const plot = figure.querySelector(".figure-plot");
    const found = figure.found;
    if (!found) return;
    figure.classList.toggle("is-empty", !found.data.length);
    if (found.data.length) {
      const Plotly = await plotly();
      figure.level = level(plot.clientWidth);
      const { data, layout } = specification(found, plot.clientWidth);
      await Plotly.react(plot, data, layout, SETTINGS);
      lead(plot);
    }
    for (const button of figure.querySelectorAll("[data-figure-download]")) button.hidden = !found.data.length;
    figure.dataset.ready = dark.matches ? "dark" : "light";
  }

  function cell(name, text, numeric) {
    const element = document.createElement(name);
    element.textContent = text;
    if (numeric) element.className = "n";
    return element;
  }

  function row(cells) {
    const element = document.createElement("tr");
    element.append(...cells);
    return element;
  }

  function tell(figure, found) {
    for (const choice of figure.querySelectorAll(".figure-choices select"))
      if (found.chosen[choice.name]) choice.value = found.chosen[choice.name];
    figure.querySelector(".figure-caption").textContent = found.caption;
    figure.querySelector(".figure-notes").replaceChildren(...found.notes.map((note) => cell("li", note)));
    const { heads, texts, numeric, links } = found.table;
    const table = document.createElement("table");
    table.className = "table";
    table.createTHead().append(row(heads.map((head, place) => cell("th", head, numeric[place]))));
    for (const head of table.querySelectorAll("th")) head.scope = "col";
    const lines = texts.map((line) => row(line.map((text, place) => cell(place ? "td" : "th", text, numeric[place]))));
    table.createTBody().append(...lines);
    table.tBodies[0].querySelectorAll("th").forEach((head, place) => {
      head.scope = "row";
      if (!links[place]) return;
      const link = Object.assign(document.createElement("a"), { href: links[place] });
      link.append(...head.childNodes);
      head.append(link);
    });
    figure.querySelector(".figure-data > div").replaceChildren(table);
    figure.querySelector(".figure-data").hidden = !heads.length;
  }

  // Return the URL of the figure, with its subject, its choices, and the current view of the page.
  function query(figure) {
    const address = new URL(figure.dataset.figureUrl, location.href);
    const choices = figure.querySelectorAll(".figure-choices select");
    const taken = new Set([...address.searchParams.keys(), ...Array.from(choices, (choice) => choice.name)]);
    // Figures read only the parameters of a board's address.
    if (document.getElementById("board-form"))
      for (const [name, value] of new URLSearchParams(location.search))
        if (!taken.has(name)) address.searchParams.append(name, value);
    // Omit unset choices. The server selects the first that is not empty.
    for (const choice of choices) if (choice.touched || choice.selectedIndex) address.searchParams.set(choice.name, choice.value);
    return address;
  }

  async function load(figure) {
    const address = query(figure);
    for (const link of figure.querySelectorAll("[data-figure-link]")) {
      const path = link.dataset.figureLink === "json" ? address.pathname : address.pathname.replace(/\.json$/, "/");
      link.href = path + address.search;
    }
    figure.asked = address.href;
    figure.setAttribute("aria-busy", "true");
    try {
      const response = await fetch(address, { headers: { Accept: "application/json" } });
      const found = await response.json();
      if (figure.asked !== address.href) return;
      if (!response.ok) throw new Error(found.detail);
      figure.found = found;
      tell(figure, found);
      await draw(figure);
    } catch (error) {
      figure.querySelector(".figure-caption").textContent = `This figure could not be drawn. ${error?.message ?? ""}`;
    } finally {
      figure.removeAttribute("aria-busy");
    }
  }

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  async function download(figure, format) {
    const Plotly = await plotly();
    const plot = figure.querySelector(".figure-plot");
    const width = Math.max(plot.clientWidth, 800);
    const legend = plot.querySelector(".legend")?.getBoundingClientRect().height ?? 0;
    // The legend needs fewer lines if the picture is wider than the figure on the page.
    const { data, layout } = takenAway(figure.found, width, legend && Math.max(20, legend * plot.clientWidth / width));
    const size = { width, height: layout.height };
    const address = await Plotly.toImage({ data, layout, config: SETTINGS }, { format: "svg", ...size });
    const name = `${figure.dataset.figureName}.${format}`;
    if (format === "svg") {
      const text = decodeURIComponent(address.slice(address.indexOf(",") + 1));
      return save(new Blob([text], { type: "image/svg+xml" }), name);
    }
    // The Content-Security-Policy allows images from data: URLs, but not from the blob: URLs that Plotly uses.
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * size.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(blob, name), "image/png");
  }

  const known = new WeakSet();
  const figures = () => document.querySelectorAll("[data-figure-url]");

  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      target.wanted = true;
      load(target);
    }
  }, { rootMargin: "150px" });

  const sized = new ResizeObserver((entries) => {
    for (const { target, contentRect } of entries) {
      const figure = target.closest("figure");
      if (figure.dataset.ready && figure.level !== level(contentRect.width)) draw(figure);
    }
  });

  function watch() {
    for (const figure of figures()) {
      if (known.has(figure)) continue;
      known.add(figure);
      delete figure.dataset.ready; // pages from htmx's history contain no drawing
      figure.classList.add("is-live");
      seen.observe(figure);
      sized.observe(figure.querySelector(".figure-plot"));
    }
  }

  // Redraw the drawn figures when the view of the page changes. Others are drawn when they scroll into view.
  function follow() {
    watch();
    for (const figure of figures()) if (figure.wanted) load(figure);
  }

  document.addEventListener("change", (event) => {
    const figure = event.target.closest(".figure-choices")?.closest("figure");
    event.target.touched = true;
    if (figure) load(figure);
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-figure-download]");
    if (button) download(button.closest("figure"), button.dataset.figureDownload);
  });
  dark.addEventListener("change", () => figures().forEach(draw));
  document.addEventListener("themechange", () => figures().forEach(draw));
  for (const name of ["htmx:pushedIntoHistory", "htmx:replacedInHistory", "htmx:historyRestore"])
    document.addEventListener(name, follow);
  document.addEventListener("htmx:load", watch);
  // htmx stores the page as HTML, where the Content-Security-Policy rejects styles. Remove drawings and Plotly's elements
  // for measuring text while htmx stores the page.
  document.addEventListener("htmx:beforeHistorySave", () => {
    for (const place of [...document.querySelectorAll(".figure-plot, #js-plotly-tester")]) {
      const drawn = [...place.childNodes];
      const style = place.style.cssText;
      place.replaceChildren();
      place.removeAttribute("style");
      queueMicrotask(() => {
        place.replaceChildren(...drawn);
        place.style.cssText = style;
      });
    }
  });
  probe.hidden = true;
  document.documentElement.append(probe);
  watch();
})();
