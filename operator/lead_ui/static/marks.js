// What is marked on the axis of a chart: stages, restarts and checkpoints; drawn behind the lines by a hook of uPlot.
"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function draw(u, marks) {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const mark of marks) {
      const x = Math.round(u.valToPos(mark.x, "x", true));
      if (mark.kind === "checkpoint") {
        const y = bbox.top + bbox.height;
        ctx.fillStyle = colour("--c2");
        ctx.beginPath();
        ctx.moveTo(x - 3 * ratio, y);
        ctx.lineTo(x + 3 * ratio, y);
        ctx.lineTo(x, y - 5 * ratio);
        ctx.fill();
        continue;
      }
      const isStage = mark.kind === "stage";
      ctx.strokeStyle = colour(isStage ? "--soft" : "--c1");
      ctx.lineWidth = ratio;
      ctx.setLineDash(isStage ? [] : [4 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (isStage) {
        ctx.fillStyle = colour("--soft");
        ctx.font = `${10 * ratio}px system-ui, sans-serif`;
        ctx.textAlign = "left"; // the axes leave another
        ctx.fillText(mark.text, x + 4 * ratio, bbox.top + 10 * ratio);
      }
    }
    ctx.restore();
  }

  // The mark beside the cursor, for the caption of the chart.
  function near(u, marks, left) {
    let found = null;
    for (const mark of marks) {
      const distance = Math.abs(u.valToPos(mark.x, "x") - left);
      if (distance < 5 && (!found || distance < found.distance)) found = { distance, text: mark.text };
    }
    return found ? found.text : "";
  }

  window.leadMarks = { draw, near, colour };
})();
