// Each figure can be saved: as it is drawn, and as the values it shows.
for (const figure of document.querySelectorAll("figure")) {
  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = figure.dataset.name + name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const drawing = () => {
    const svg = figure.querySelector("svg").cloneNode(true);
    const style = document.createElementNS(svg.namespaceURI, "style");
    style.textContent = document.getElementById("fig").textContent;
    svg.prepend(style);
    return new XMLSerializer().serializeToString(svg);
  };
  const values = () => figure.querySelector("pre").textContent;
  const bar = document.createElement("div");
  bar.className = "save";
  for (const [title, press] of [
    ["SVG", () => save(".svg", "image/svg+xml", drawing())],
    ["CSV", () => save(".csv", "text/csv", values())],
  ]) {
    const button = document.createElement("button");
    button.textContent = title;
    button.title = "Save this figure as " + title;
    button.onclick = press;
    bar.append(button);
  }
  figure.append(bar);
}
