"use strict";

// Shows sequences step by step: image, truth, estimate, measurement and particles on a canvas.
// Where images do not show where things are, they have a canvas of their own beside a plane.
// `listener.onSequence(player, sequence, number)` and `listener.onStep(step)` are called whenever
// another sequence or step is shown; steps count from one for readers and from zero inside.
class Player {
  constructor(root, players, images, listener) {
    Object.assign(this, { root, players, images, listener });
    this.canvas = this.part("canvas");
    this.camera = this.part("camera");
    this.layers = new Set(Object.keys(Layers));
    this.step = 0;
    this.timer = null;
    this.errors = null;
    Player.fill(this.part("run"), players.map((player) => player.name));
    this.addToggles();
    this.listen();
    this.chooseRun();
  }

  part(name) {
    return this.root.querySelector(`[data-part="${name}"]`);
  }

  static fill(select, names) {
    select.replaceChildren(...names.map((name, i) => Charts.html("option", { value: i }, name)));
  }

  get lastStep() {
    return this.sequence.truth.length - 1;
  }

  // Choosing what is shown

  // Sequence and step stay, so that runs can be compared on the same image.
  chooseRun() {
    const [sequence, component] = [this.part("sequence").value, this.part("component").value];
    this.player = this.players[this.part("run").value];
    const { sequences, components } = this.player;
    Player.fill(this.part("sequence"), sequences.map((_, i) => String(i + 1)));
    Player.fill(this.part("component"), components);
    this.part("sequence").value = sequence in sequences ? sequence : 0;
    this.part("component").value = component in components ? component : 0;
    this.chooseSequence();
  }

  chooseSequence() {
    const number = Number(this.part("sequence").value);
    this.sequence = this.player.sequences[number];
    this.load(this.sequence);
    this.part("scrub").max = this.lastStep;
    this.arrange();
    for (const box of this.part("layers").querySelectorAll("input")) {
      const [layer, label] = [Layers[box.value], box.closest("label")];
      label.hidden = !layer.needs(this.sequence);
      if (layer.label && !label.hidden) label.lastChild.textContent = layer.label(this.sequence);
    }
    this.showErrors();
    this.listener.onSequence(this.player, this.sequence, number + 1);
    this.goTo(this.step);
  }

  // A plane and the image beside it need another arrangement than an image with all in it.
  arrange() {
    const { plane, sheet, readings } = this.sequence;
    this.root.classList.toggle("planar", Boolean(plane && sheet));
    this.camera.hidden = !(plane && sheet);
    this.canvas.setAttribute("aria-label", plane
      ? "Plane from above with truth and estimate"
      : "Image with truth, estimate and measurement");
    this.outputs = readings.map(({ name }) => Charts.html("output", { "aria-live": "off", "data-reading": name }));
    this.part("readings").replaceChildren(
      this.part("readings").firstElementChild, // the step
      ...readings.map(({ name }, i) => Charts.html(
        "div", {}, Charts.html("dt", {}, name), Charts.html("dd", {}, this.outputs[i]),
      )),
    );
  }

  load(sequence) {
    if (!sequence.sheet || sequence.image) return;
    sequence.image = new Image();
    sequence.image.addEventListener("load", () => this.draw());
    sequence.image.src = this.images[sequence.sheet];
  }

  showErrors() {
    const description = this.sequence.errors[this.part("component").value];
    if (this.errors) this.errors.describe(description);
    else this.errors = Charts.mount(this.part("errors"), description, (step) => this.jump(step - 1));
    this.errors.moveCursor(this.step + 1);
  }

  goTo(step) {
    this.step = Math.max(0, Math.min(this.lastStep, step));
    const position = `${this.step + 1} of ${this.lastStep + 1}`;
    this.part("scrub").value = this.step;
    this.part("scrub").setAttribute("aria-valuetext", `step ${position}`);
    this.part("step").textContent = position;
    this.sequence.readings.forEach(({ values, unit }, i) => {
      const gap = unit === "°" ? "" : " ";
      this.outputs[i].textContent = (Scales.format(values[this.step]) + gap + unit).trim();
    });
    this.errors.moveCursor(this.step + 1);
    this.listener.onStep(this.step + 1);
    this.draw();
  }

  // Playing

  play() {
    if (this.step === this.lastStep) this.goTo(0);
    this.timer = setInterval(() => this.advance(), 1000 / this.part("speed").value);
    this.part("play").textContent = "Pause";
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.part("play").textContent = "Play";
  }

  toggle() {
    if (this.timer === null) this.play();
    else this.pause();
  }

  advance() {
    this.goTo(this.step + 1);
    if (this.step === this.lastStep) this.pause();
  }

  jump(step) {
    this.pause();
    this.goTo(step);
  }

  changeSpeed() {
    if (this.timer === null) return;
    this.pause();
    this.play();
  }

  // Drawing

  draw() {
    const { sequence, step } = this;
    const pens = sequence.plane
      ? { plane: this.planePen(), image: this.imagePen(this.camera) }
      : { image: this.imagePen(this.canvas) };
    const main = sequence.plane ? "plane" : "image";
    for (const [key, layer] of Object.entries(Layers)) {
      if (!this.layers.has(key) || !layer.needs(sequence)) continue;
      for (const where of layer.everywhere ? Object.keys(pens) : [key === "image" ? key : main]) {
        if (pens[where]) layer.draw(pens[where], sequence, step, where);
      }
    }
  }

  // The drawing has as many pixels as the screen, so that thin ellipses are sharp.
  static widen(canvas) {
    const unit = window.devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * unit);
    return unit;
  }

  planePen() {
    const unit = Player.widen(this.canvas);
    return this.canvas.width ? Plane.prepare(this.canvas, this.sequence, unit) : null;
  }

  // For an image and what is in it, or for an image alone.
  imagePen(canvas) {
    const unit = Player.widen(canvas);
    const { image, columns, rows, plane } = this.sequence;
    const alone = plane && image?.naturalWidth;
    if (!canvas.width || (plane && !alone)) return null;
    const { width, height, margin } = alone
      ? { width: image.naturalWidth / columns, height: image.naturalHeight / rows, margin: 0 }
      : this.sequence;
    canvas.height = Math.round((canvas.width * height) / width);
    return { context: canvas.getContext("2d"), scale: canvas.width / width, unit, margin };
  }

  addToggles() {
    for (const [key, layer] of Object.entries(Layers)) {
      const box = Charts.html("input", { type: "checkbox", value: key, checked: "" });
      const label = Charts.html("label", {}, box);
      if (layer.icon) {
        const canvas = Charts.html("canvas", { width: 44, height: 44, "aria-hidden": "true" });
        layer.icon({ context: canvas.getContext("2d"), scale: 2, unit: 2 });
        label.append(canvas);
      }
      label.append(layer.name);
      this.part("layers").append(label);
    }
  }

  changeLayer({ target }) {
    if (target.checked) this.layers.add(target.value);
    else this.layers.delete(target.value);
    this.draw();
  }

  // Listening to the reader

  listen() {
    const on = (name, event, action) => this.part(name).addEventListener(event, action);
    on("run", "change", () => this.chooseRun());
    on("sequence", "change", () => this.chooseSequence());
    on("component", "change", () => this.showErrors());
    on("speed", "change", () => this.changeSpeed());
    on("layers", "change", (event) => this.changeLayer(event));
    on("scrub", "input", () => this.jump(Number(this.part("scrub").value)));
    on("back", "click", () => this.jump(this.step - 1));
    on("forward", "click", () => this.jump(this.step + 1));
    on("play", "click", () => this.toggle());
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    const redraw = new ResizeObserver(() => this.draw());
    for (const canvas of [this.canvas, this.camera]) redraw.observe(canvas);
  }

  onKey(event) {
    const actions = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.jump(this.step - 1),
      ArrowRight: () => this.jump(this.step + 1),
      Home: () => this.jump(0),
      End: () => this.jump(this.lastStep),
    };
    // Controls keep the keys that they understand themselves.
    const understood = event.target.matches("select, input[type=checkbox]")
      || (event.target.matches("button") && event.key === " ");
    const modified = event.ctrlKey || event.altKey || event.metaKey;
    if (understood || modified || !(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  }
}
