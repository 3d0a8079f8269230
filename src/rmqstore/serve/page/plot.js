// Plots of the last minutes, drawn as SVG from the points that the server keeps.
// Uses functions of page.js, which is loaded before the first plot.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600;
const HEIGHT = 72;
// Each plot: its name, and its lines as name, place in a point, and class.
const PLOTS = [
  ["Messages a second", [["put", 1, ""], ["read", 2, "second"]]],
  ["Consumer lag, messages", [["behind", 3, "late"]]],
];
const LEAST = 60; // seconds that a plot spans

function plotOf([name, lines]) {
  const figure = make("figure");
  const caption = make("figcaption");
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  for (const [, , kind] of lines) {
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("class", kind);
    svg.append(line);
  }
  caption.append(make("span", name), ...lines.map(() => make("span")));
  figure.append(caption, svg);
  return figure;
}

function showTrend(points) {
  const plots = byId("plots");
  if (!plots.children.length) plots.append(...PLOTS.map(plotOf));
  const end = points.length ? points[points.length - 1][0] : 0;
  const seconds = Math.max(LEAST, points.length ? end - points[0][0] : 0);
  say("trend_note", points.length > 1 ? `${span(seconds * 1000)} until now, at the right.`
    : "The first points come within ten seconds.");
  PLOTS.forEach(([name, lines], at) => {
    const [caption, svg] = plots.children[at].children;
    const most = Math.max(1, ...lines.flatMap(([, place]) => points.map((one) => one[place] ?? 0)));
    const says = [];
    lines.forEach(([what, place], number) => {
      const known = points.filter((one) => one[place] !== null);
      svg.children[number].setAttribute("points", known.map((one) => {
        const x = WIDTH - (end - one[0]) / seconds * WIDTH;
        const y = HEIGHT - 2 - (one[place] / most) * (HEIGHT - 6);
        return `${x.toFixed(1)},${y.toFixed(1)}`;
      }).join(" "));
      const now = known.length ? known[known.length - 1][place] : 0;
      const top = Math.max(0, ...known.map((one) => one[place]));
      const dashed = lines.length > 1 && number ? ", dashed" : "";
      says.push(`${what} ${rate.format(now)}, peak ${rate.format(top)}${dashed}`);
      const said = caption.children[number + 1];
      if (said.textContent !== says[number]) said.textContent = says[number];
    });
    svg.setAttribute("aria-label", `${name}: ${says.join("; ")}`);
  });
}
