"use strict";

// Theme: that of the system, unless the address or the button overrides it.
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const requested = /^#(dark|light)$/.exec(location.hash);
  if (requested) root.dataset.theme = requested[1];
  const label = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${dark() ? "light" : "dark"} colours`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    label();
  });
  system.addEventListener("change", label);
  button.hidden = false;
  label();
})();

// Tooltips: the title of the mark under the pointer, without delay and on phones too.
(() => {
  const tip = document.getElementById("tip");
  const hide = () => { tip.hidden = true; };
  const show = (event) => {
    const mark = event.target.closest ? event.target.closest("figure svg *") : null;
    if (!mark) return hide();
    const title = mark.querySelector(":scope > title");
    if (title) {
      mark.dataset.tip = title.textContent;
      title.remove();
    }
    if (!mark.dataset.tip) return hide();
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 12, innerWidth - box.width - 8);
    const above = event.clientY - box.height - 12;
    tip.style.left = `${Math.max(left, 8)}px`;
    tip.style.top = `${above > 8 ? above : event.clientY + 18}px`;
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
})();

// The globe: every pixel of the disc looks up its location on the grid.
(() => {
  const source = document.getElementById("globe-data");
  if (!source) return;
  const { rows, columns, layers, points } = JSON.parse(source.textContent);
  const ramps = {
    value: ["#15305b", "#1f6196", "#4296ae", "#97c9b4", "#f3ecc2"],
    doubt: ["#f7f2e8", "#f0cb9c", "#dc8d4c", "#ab4a09", "#5f2506"],
  };
  const degree = Math.PI / 180;
  const start = { latitude: 20, longitude: 10 };
  const view = { ...start };

  const colours = (ramp) => {
    const stops = ramps[ramp].map((hex) =>
      [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    return Array.from({ length: 256 }, (_, index) => {
      const at = (index / 255) * (stops.length - 1);
      const low = Math.min(Math.floor(at), stops.length - 2);
      return stops[low].map((value, part) => value + (at - low) * (stops[low + 1][part] - value));
    });
  };
  const decode = (text) => {
    const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    const parts = new DataView(bytes.buffer);
    return Float32Array.from({ length: rows * columns }, (_, n) =>
      parts.getUint16(2 * n, true) / 65535);
  };
  // Bilinear interpolation; the poles repeat the nearest row.
  const interpolate = (values, latitude, longitude) => {
    const y = Math.min(Math.max((90 - latitude) / 180 * rows - 0.5, 0), rows - 1);
    const x = (longitude + 180) / 360 * columns - 0.5;
    const top = Math.min(Math.floor(y), rows - 2), left = Math.floor(x);
    const down = y - top, along = x - left;
    const west = (left % columns + columns) % columns, east = (west + 1) % columns;
    const upper = values[top * columns + west] * (1 - along) + values[top * columns + east] * along;
    const below = values[(top + 1) * columns + west] * (1 - along)
      + values[(top + 1) * columns + east] * along;
    return upper * (1 - down) + below * down;
  };
  const toLocation = (x, y, z) => {
    // From the frame of the viewer (x right, y up, z towards the viewer) to that of the earth.
    const tilt = view.latitude * degree;
    const up = y * Math.cos(tilt) + z * Math.sin(tilt);
    const near = z * Math.cos(tilt) - y * Math.sin(tilt);
    const longitude = view.longitude + Math.atan2(x, near) / degree;
    return [Math.asin(Math.max(-1, Math.min(1, up))) / degree,
      ((longitude + 540) % 360 + 360) % 360 - 180];
  };
  const toView = (latitude, longitude) => {
    const tilt = view.latitude * degree, up = Math.sin(latitude * degree);
    const turn = (longitude - view.longitude) * degree, across = Math.cos(latitude * degree);
    const near = across * Math.cos(turn);
    return [across * Math.sin(turn), up * Math.cos(tilt) - near * Math.sin(tilt),
      near * Math.cos(tilt) + up * Math.sin(tilt)];
  };
  const format = (value) => Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3)
    ? value.toExponential(2) : Number(value.toPrecision(4)).toString();

  const globes = [...document.querySelectorAll("canvas[data-layer]")].map((canvas) => {
    const layer = layers[Number(canvas.dataset.layer)];
    const figure = canvas.closest("figure");
    figure.querySelector(".ramp").style.background =
      `linear-gradient(90deg, ${ramps[layer.ramp].join(", ")})`;
    return { canvas, layer, values: decode(layer.data), colours: colours(layer.ramp),
      output: figure.querySelector("output"), context: canvas.getContext("2d") };
  });

  const graticule = (context, middle, radius) => {
    context.lineWidth = radius / 300;
    const along = (line) => {
      context.beginPath();
      let down = false;
      for (const [latitude, longitude] of line) {
        const [x, y, z] = toView(latitude, longitude);
        if (z < 0) { down = false; continue; }
        context[down ? "lineTo" : "moveTo"](middle + radius * x, middle - radius * y);
        down = true;
      }
      context.stroke();
    };
    const steps = Array.from({ length: 121 }, (_, n) => n / 120);
    for (let latitude = -60; latitude <= 60; latitude += 30) {
      context.strokeStyle = latitude ? "rgba(20,25,35,.28)" : "rgba(20,25,35,.6)";
      along(steps.map((share) => [latitude, 360 * share - 180]));
    }
    for (let longitude = -180; longitude < 180; longitude += 30) {
      context.strokeStyle = longitude ? "rgba(20,25,35,.28)" : "rgba(20,25,35,.6)";
      along(steps.map((share) => [180 * share - 90, longitude]));
    }
  };
  // Blocks of "step" pixels: two while the globe turns, one at rest.
  const draw = ({ canvas, values, colours: shades, context, layer }, step) => {
    const size = canvas.width, middle = size / 2, radius = middle - 2;
    const image = context.createImageData(size, size), data = image.data;
    const high = Math.sin(view.latitude * degree), flat = Math.cos(view.latitude * degree);
    for (let row = 0; row < size; row += step) {
      const y = (middle - row - step / 2) / radius;
      for (let column = 0; column < size; column += step) {
        const x = (column + step / 2 - middle) / radius, square = x * x + y * y;
        if (square > 1) continue;
        const z = Math.sqrt(1 - square), up = Math.min(1, Math.max(-1, y * flat + z * high));
        const longitude = view.longitude + Math.atan2(x, z * flat - y * high) / degree;
        const shade = shades[Math.round(255 * interpolate(values, Math.asin(up) / degree, longitude))];
        // Antialiased edge, one pixel wide.
        const cover = 255 * Math.min(1, (1 - Math.sqrt(square)) * radius);
        for (let part = 0; part < step * step; part += 1) {
          const down = Math.floor(part / step), along = part % step;
          const pixel = 4 * ((row + down) * size + column + along);
          data[pixel] = shade[0];
          data[pixel + 1] = shade[1];
          data[pixel + 2] = shade[2];
          data[pixel + 3] = cover;
        }
      }
    }
    context.putImageData(image, 0, 0);
    graticule(context, middle, radius);
    context.fillStyle = layer.ramp === "doubt" ? "rgba(20,45,85,.75)" : "rgba(255,255,255,.8)";
    context.strokeStyle = "rgba(20,25,35,.5)";
    context.lineWidth = 1;
    for (const [latitude, longitude] of points) {
      const [x, y, z] = toView(latitude, longitude);
      if (z < 0.02) continue;
      context.beginPath();
      context.arc(middle + radius * x, middle - radius * y, 2.4, 0, 7);
      context.fill();
      context.stroke();
    }
  };
  let waiting = false, rest = 0;
  const redraw = () => {
    clearTimeout(rest);
    rest = setTimeout(() => globes.forEach((globe) => draw(globe, 1)), 150);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      globes.forEach((globe) => draw(globe, 2));
    });
  };
  const turn = (latitude, longitude) => {
    view.latitude = Math.max(-90, Math.min(90, view.latitude + latitude));
    view.longitude += longitude;
    redraw();
  };
  const showValue = (latitude, longitude) => globes.forEach(({ values, layer, output }) => {
    const value = layer.low + interpolate(values, latitude, longitude) * (layer.high - layer.low);
    const north = `${Math.abs(latitude).toFixed(0)}° ${latitude < 0 ? "S" : "N"}`;
    const east = `${Math.abs(longitude).toFixed(0)}° ${longitude < 0 ? "W" : "E"}`;
    output.textContent = `${format(value)} at ${north}, ${east}`;
  });
  const keys = { ArrowLeft: [0, -10], ArrowRight: [0, 10], ArrowUp: [10, 0], ArrowDown: [-10, 0] };
  globes.forEach(({ canvas }) => {
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      held = [event.clientX, event.clientY];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      if (held) {
        const step = 180 / box.width;
        turn((event.clientY - held[1]) * step, (held[0] - event.clientX) * step);
        held = [event.clientX, event.clientY];
      }
      const x = 2 * (event.clientX - box.left) / box.width - 1;
      const y = 1 - 2 * (event.clientY - box.top) / box.height;
      const square = x * x + y * y;
      if (square < 1) showValue(...toLocation(x, y, Math.sqrt(1 - square)));
    });
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, () => { held = null; });
    }
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "Home") { Object.assign(view, start); turn(0, 0); }
      else if (keys[event.key]) turn(...keys[event.key]);
      else return;
      event.preventDefault();
      showValue(...toLocation(0, 0, 1));
    });
  });
  redraw();
})();
