// The program under test: takes orders and writes an invoice for each, says prices, and gives back what it was sent.
const rhea = require("rhea");

class Invoicing {
  constructor({ host, port, prices = {}, prefix = "", selector = null, name = "invoicing" }) {
    this.prices = prices;
    this.invoiced = [];
    this.errors = [];
    this.connections = this.lost = 0;
    this.waiting = new Map(); // invoices without an outcome
    this.work = Promise.resolve();
    const container = rhea.create_container({ id: name });
    this.connection = container.connect({ host, port, initial_reconnect_delay: 5, max_reconnect_delay: 50 });
    this.connection.on("connection_open", () => this.connections++);
    this.connection.on("disconnected", () => {
      this.lost++;
      for (const tell of this.waiting.values()) tell("unknown");
    });
    for (const what of ["sender_error", "receiver_error", "session_error", "connection_error"])
      this.connection.on(what, (context) => this.errors.push(String((context[what.split("_")[0]].error || {}).condition)));
    for (const outcome of ["accepted", "rejected", "released", "modified"])
      this.connection.on(outcome, (context) => (this.waiting.get(context.delivery) || (() => {}))(outcome));

    const filter = selector ? rhea.filter.selector(selector) : undefined;
    const links = { credit_window: 10, autoaccept: false };
    const orders = this.connection.open_receiver({ source: { address: prefix + "orders", filter }, ...links });
    const questions = this.connection.open_receiver({ source: { address: prefix + "prices" }, ...links });
    const echoes = this.connection.open_receiver({ source: { address: prefix + "echo" }, ...links });
    this.invoices = this.connection.open_sender({ target: prefix + "invoices", treat_modified_as_released: false });
    this.answers = this.connection.open_sender({ target: {} });
    orders.on("message", (context) => this.next(() => this.invoice(context)));
    questions.on("message", (context) => this.next(() => this.answer(context, this.prices[context.message.body] ?? -1)));
    echoes.on("message", (context) => this.next(() => this.answer(context, context.message.body)));
    this.links = [orders, questions, echoes, this.invoices, this.answers];
  }

  // One after the other, each in a turn of its own: rhea says one outcome for all of a turn. What came over a
  // connection that was lost meanwhile comes again.
  next(step) {
    const lost = this.lost;
    this.work = this.work.then(() => (lost === this.lost ? step() : null)).then(() => new Promise(setImmediate));
  }

  opened() {
    const opened = (link) => new Promise((resolve) => link.once("sender_open", resolve).once("receiver_open", resolve));
    return Promise.all(this.links.map(opened));
  }

  async invoice({ message, delivery }) {
    const { item, quantity } = typeof message.body === "object" && message.body ? message.body : {};
    if (!message.message_id || typeof item !== "string" || !(quantity >= 1))
      return delivery.reject({ condition: "shop:no-order", description: "an order has an id, an item and a quantity" });
    if (this.invoiced.includes(message.message_id)) return delivery.accept();
    if (!(item in this.prices)) return delivery.modified({ delivery_failed: true });
    const total = this.prices[item] * quantity;
    const invoice = { correlation_id: message.message_id, subject: item, durable: true, body: { item, total } };
    const sent = this.invoices.send(invoice);
    const outcome = await new Promise((resolve) => this.waiting.set(sent, resolve));
    this.waiting.delete(sent);
    if (outcome === "unknown") return; // the order comes again
    if (outcome !== "accepted") return delivery.modified({ delivery_failed: true });
    this.invoiced.push(message.message_id);
    delivery.accept();
  }

  answer({ message, delivery }, body) {
    const { correlation_id, subject, group_id, content_type, application_properties } = message;
    this.answers.send({ to: message.reply_to, correlation_id, subject, group_id, content_type, application_properties, body });
    delivery.accept();
  }

  async stop() {
    const closed = new Promise((resolve) => this.connection.once("connection_close", resolve).once("disconnected", resolve));
    this.connection.close();
    await closed;
  }
}

module.exports = { Invoicing };
