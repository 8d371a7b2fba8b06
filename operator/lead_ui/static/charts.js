// Charts of scalars: asks the server for the lines of what is in view, a few hundred points each, and draws them.
"use strict";
(() => {
  const AT_ONCE = 12; // tags of one request
  const REFRESH_MS = 5000;
  const HEIGHT = 190;
  const DASHES = [undefined, [6, 4], [2, 3], [10, 4, 2, 4]];
  const { colour } = window.leadMarks;

  const digits = (value) => (value === null || value === undefined ? "" : Number(value.toPrecision(4)).toString());
  const short = (value) => {
    const size = Math.abs(value);
    if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
    if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
    if (size !== 0 && size < 1e-3) return value.toExponential(0);
    return Number(value.toPrecision(4)).toString();
  };

  class Charts {
    constructor(root) {
      this.root = root;
      this.path = root.dataset.source;
      this.figures = [...root.querySelectorAll(".chart")];
      this.answers = new Map(); // of a figure: what the server answered last
      this.plots = new Map();
      this.inView = new Set();
      this.wanted = new Set();
      this.marks = [];
      this.span = null;
      this.version = 0;
      this.controls();
      this.observer = new IntersectionObserver((entries) => this.seen(entries), { rootMargin: "300px 0px" });
      this.figures.forEach((figure) => this.observer.observe(figure));
      new ResizeObserver(() => this.resize()).observe(root);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
      setInterval(() => this.refresh(), REFRESH_MS);
    }

    control(name) { return this.root.querySelector(`[name=${name}]`); }
    get axis() { return this.root.querySelector("[name=axis]:checked").value; }

    controls() {
      const again = () => { this.span = null; this.reload(); };
      this.root.querySelectorAll("[name=axis]").forEach((input) => input.addEventListener("change", again));
      this.control("log").addEventListener("change", () => this.redraw());
      const smoothing = this.control("smoothing");
      smoothing.addEventListener("input", () => { smoothing.nextElementSibling.value = smoothing.value; this.redraw(); });
      this.control("seeds")?.addEventListener("change", () => this.reload());
      this.control("filter").addEventListener("input", (event) => this.filter(event.target.value));
      this.control("reset").addEventListener("click", again);
    }

    filter(text) {
      const words = text.toLowerCase().split(/\s+/).filter(Boolean);
      this.figures.forEach((figure) => { figure.hidden = !words.every((word) => figure.dataset.tag.toLowerCase().includes(word)); });
      this.root.querySelectorAll(".section").forEach((section) => {
        section.hidden = !section.querySelector(".chart:not([hidden])");
      });
    }

    seen(entries) {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) this.inView.add(target); else this.inView.delete(target);
        if (isIntersecting && !this.answers.has(target)) this.wanted.add(target);
      }
      this.fetch();
    }

    reload() {
      this.version += 1;
      this.answers.clear();
      this.wanted = new Set(this.inView);
      this.control("reset").hidden = this.span === null;
      this.fetch();
    }

    refresh() {
      const live = document.querySelector("#summary .phase-running, #summary .phase-checkpointing, .chosen .phase-running");
      if (document.hidden || !live || this.span) return;
      this.inView.forEach((figure) => this.wanted.add(figure));
      this.fetch();
    }

    async fetch() {
      if (this.busy || !this.wanted.size) return;
      this.busy = true;
      try {
        while (this.wanted.size) {
          const figures = [...this.wanted].slice(0, AT_ONCE);
          figures.forEach((figure) => this.wanted.delete(figure));
          await this.ask(figures);
        }
      } finally {
        this.busy = false;
      }
    }

    async ask(figures) {
      const version = this.version;
      const query = new URLSearchParams({ axis: this.axis });
      figures.forEach((figure) => query.append("tag", figure.dataset.tag));
      if (this.span) { query.set("from", this.span[0]); query.set("to", this.span[1]); }
      if (this.control("seeds")?.checked) query.set("seeds", "mean");
      const answer = await fetch(`${this.path}${this.path.includes("?") ? "&" : "?"}${query}`);
      if (!answer.ok) {
        figures.forEach((figure) => { figure.querySelector(".last").textContent = `not available (${answer.status})`; });
        return;
      }
      const found = await answer.json();
      if (version !== this.version) return;
      this.marks = found.marks || [];
      figures.forEach((figure) => {
        this.answers.set(figure, found.charts[figure.dataset.tag]);
        this.draw(figure);
      });
    }

    redraw() { this.answers.forEach((_, figure) => this.draw(figure)); }

    resize() {
      this.plots.forEach((plot, figure) => {
        const width = figure.querySelector(".plot").clientWidth;
        if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
      });
    }

    draw(figure) {
      const answer = this.answers.get(figure);
      const holder = figure.querySelector(".plot");
      this.plots.get(figure)?.destroy();
      this.plots.delete(figure);
      holder.textContent = "";
      if (!answer || !answer.names.length) {
        holder.setAttribute("aria-label", `${figure.dataset.tag}: no points on this axis`);
        figure.querySelector(".last").textContent = "no points on this axis";
        return;
      }
      const smoothing = Number(this.control("smoothing").value);
      const data = [answer.x];
      const series = [{ label: this.axis, value: (u, value) => (value === null ? "" : this.at(value)) }];
      const bands = [];
      answer.names.forEach((name, number) => {
        const [mean, low, high] = answer.columns.slice(3 * number, 3 * number + 3);
        const stroke = colour(`--c${answer.colours[number] % 8}`);
        const common = { stroke, dash: DASHES[answer.dashes[number] % DASHES.length], spanGaps: true, points: { show: answer.x.length < 3, size: 5 } };
        const isWide = low.some((value, at) => value !== null && value !== high[at]);
        data.push(smoothed(mean, smoothing));
        series.push({ ...common, label: name, width: 1.6, value: (u, value) => digits(value) });
        if (isWide) {
          data.push(high, low);
          series.push({ stroke: "transparent", spanGaps: true, points: { show: false } });
          series.push({ stroke: "transparent", spanGaps: true, points: { show: false } });
          bands.push({ series: [data.length - 2, data.length - 1], fill: faint(stroke) });
        }
      });
      const plot = new uPlot(this.options(figure, series, bands), data, holder);
      hideBands(plot, series);
      this.plots.set(figure, plot);
      this.caption(figure, answer);
    }

    options(figure, series, bands) {
      const grid = { stroke: colour("--line"), width: 1 };
      const axis = { stroke: colour("--soft"), grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
      const isTime = this.axis === "time";
      return {
        width: figure.querySelector(".plot").clientWidth || 320,
        height: HEIGHT,
        series,
        bands,
        scales: { x: { time: isTime }, y: { distr: this.control("log").checked ? 3 : 1 } },
        axes: [
          { ...axis, size: 26, gap: 4, ...(isTime ? {} : { values: (u, splits) => splits.map(short) }) },
          { ...axis, size: 52, gap: 4, values: (u, splits) => splits.map((value) => (value === null ? "" : short(value))) },
        ],
        cursor: { sync: { key: "x", setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
        legend: { show: series.filter((each) => each.label).length > 2, live: true },
        hooks: {
          drawAxes: [(u) => leadMarks.draw(u, this.marks)],
          setCursor: [(u) => this.pointed(figure, u)],
          setSelect: [(u) => this.zoom(u)],
          ready: [(u) => u.over.addEventListener("dblclick", () => { if (this.span) { this.span = null; this.reload(); } })],
        },
      };
    }

    at(value) { return this.axis === "time" ? new Date(value * 1000).toLocaleString() : digits(value); }

    zoom(u) {
      if (u.select.width < 4) return;
      this.span = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
      u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      this.reload();
    }

    pointed(figure, u) {
      const last = figure.querySelector(".last");
      const mark = u.cursor.left >= 0 ? leadMarks.near(u, this.marks, u.cursor.left) : "";
      const point = u.cursor.idx;
      const isOne = this.answers.get(figure)?.names.length === 1 && point !== null && point !== undefined;
      const value = isOne ? `${this.at(u.data[0][point])}: ${digits(u.data[1][point])}` : "";
      last.textContent = mark || value || last.dataset.text || "";
    }

    caption(figure, answer) {
      const lasts = answer.names.map((name, number) => {
        const values = answer.columns[3 * number].filter((value) => value !== null);
        return `${name} ${digits(values[values.length - 1])}`;
      });
      const last = figure.querySelector(".last");
      last.dataset.text = lasts.length === 1 ? lasts[0].slice(answer.names[0].length + 1) : "";
      last.textContent = last.dataset.text;
      figure.querySelector(".plot").setAttribute("aria-label", `${figure.dataset.tag}, last values: ${lasts.join(", ")}`);
    }
  }

  // As TensorBoard smooths: an exponential mean, corrected for its start.
  function smoothed(values, weight) {
    if (!weight) return values;
    let mean = 0;
    let count = 0;
    return values.map((value) => {
      if (value === null) return null;
      mean = mean * weight + (1 - weight) * value;
      count += 1;
      return mean / (1 - weight ** count);
    });
  }

  function faint(stroke) {
    const number = parseInt(stroke.slice(1), 16);
    return `rgba(${number >> 16}, ${(number >> 8) & 255}, ${number & 255}, 0.18)`;
  }

  // Bounds of a band are series of uPlot, and no rows of its legend.
  function hideBands(plot, series) {
    plot.root.querySelectorAll(".u-legend .u-series").forEach((row, number) => {
      if (number && !series[number].label) row.hidden = true;
    });
  }

  document.querySelectorAll(".charts").forEach((root) => new Charts(root));
})();
