'use strict';
/* rhea's events as promises: a connection, its queue, receivers that keep what arrives and settle nothing themselves. */

const assert = require('node:assert');
const { randomUUID } = require('node:crypto');
const rhea = require('rhea');

const TIMEOUT_MS = 20000;

/* rhea hands out a decoded message without its octets; keeping them lets a check compare types, not only values. */
const decode = rhea.message.decode;
rhea.message.decode = (octets) => {
    const message = decode(octets);
    Object.defineProperty(message, 'octets', { value: octets, enumerable: false });
    return message;
};

/** Values that arrive now and are asked for later, or the other way round. */
class Mailbox {
    constructor(what) {
        this.what = what;
        this.arrived = [];
        this.waiting = [];
    }

    put(value) {
        const waiter = this.waiting.shift();
        if (waiter) waiter.resolve(value);
        else this.arrived.push(value);
    }

    fail(error) {
        this.waiting.splice(0).forEach((waiter) => waiter.reject(error));
    }

    next() {
        if (this.arrived.length) return Promise.resolve(this.arrived.shift());
        return new Promise((resolve, reject) => {
            const late = () => reject(new Error(`${this.what}: nothing came within ${TIMEOUT_MS} ms`));
            const timer = setTimeout(late, TIMEOUT_MS);
            const done = (settle) => (value) => { clearTimeout(timer); settle(value); };
            this.waiting.push({ resolve: done(resolve), reject: done(reject) });
        });
    }
}

class Receiver {
    constructor(client, options) {
        const settings = { credit_window: 0, autoaccept: false, snd_settle_mode: 0, ...options };
        settings.source = { address: client.queue, ...(options && options.source) };
        this.messages = client.mailbox('message');
        this.closed = client.mailbox('detach');
        this.drained = client.mailbox('answer to drain');
        this.settled = client.mailbox('settlement by the broker');
        this.opened = client.mailbox('attach');
        this.link = client.connection.open_receiver(settings);
        this.link.on('message', (context) => this.messages.put(context));
        this.link.on('receiver_open', () => this.opened.put());
        this.link.on('receiver_close', () => this.closed.put());
        this.link.on('receiver_drained', () => this.drained.put());
        this.link.on('settled', (context) => this.settled.put(context.delivery));
        if (settings.credit !== 0) this.link.add_credit(settings.credit || 10);
    }

    receive() { return this.messages.next(); }

    async accept() {
        const { message, delivery } = await this.receive();
        delivery.accept();
        return message;
    }

    async acceptBodies(count) {
        const bodies = [];
        while (bodies.length < count) bodies.push((await this.accept()).body);
        return bodies;
    }

    async close() {
        this.link.close();
        await this.closed.next();
    }
}

class Client {
    constructor(url, connectionOptions = {}) {
        this.url = new URL(url);
        this.queue = `clients-rhea-${randomUUID().slice(0, 13)}`;
        this.connectionOptions = connectionOptions;
        this.mailboxes = [];
    }

    mailbox(what) {
        const box = new Mailbox(what);
        this.mailboxes.push(box);
        return box;
    }

    async connect() {
        const container = rhea.create_container();
        const opened = this.mailbox('open');
        const options = {
            host: this.url.hostname, port: Number(this.url.port || 5672), reconnect: false,
            username: process.env.AMQP_USER || 'anonymous', password: process.env.AMQP_PASSWORD,
            ...this.connectionOptions,
        };
        this.closed = this.mailbox('close');
        for (const event of ['connection_error', 'session_error', 'sender_error', 'receiver_error']) {
            container.on(event, (context) => this.fail(event, context));
        }
        container.on('error', (error) => this.fail('error', { error }));
        container.on('connection_open', () => opened.put());
        container.on('connection_close', () => this.closed.put());
        container.on('disconnected', (context) => {
            if (!options.reconnect) this.fail('disconnected', context);
        });
        this.connection = container.connect(options);
        await opened.next();
        return this;
    }

    fail(event, context) {
        const link = context.receiver || context.sender || context.session || context.connection || {};
        const reason = context.error || link.error || {};
        const text = `${event}: ${reason.condition || ''} ${reason.description || reason.message || ''}`;
        this.mailboxes.forEach((box) => box.fail(new Error(text)));
    }

    receiver(options) { return new Receiver(this, options); }

    /** Sends all and waits for the outcome of each, unless they go pre-settled; the link stays open. */
    async send(messages, options = {}) {
        const outcomes = this.mailbox('outcome');
        const sender = this.connection.open_sender({ target: { address: this.queue }, ...options });
        for (const outcome of ['accepted', 'rejected', 'released', 'modified']) {
            sender.on(outcome, ({ delivery }) => outcomes.put({ outcome, settled: delivery.remote_settled, delivery }));
        }
        const sendable = this.mailbox('credit');
        sender.on('sendable', () => sendable.put());
        await sendable.next();
        messages.forEach((message) => sender.send(message));
        const results = [];
        while (options.snd_settle_mode !== 1 && results.length < messages.length) results.push(await outcomes.next());
        for (const result of results) assert.equal(result.outcome, 'accepted', 'outcome of sending');
        return results;
    }

    async roundTrip(message, options) {
        await this.send([message], options);
        const receiver = this.receiver({ credit: 1 });
        const received = await receiver.accept();
        await receiver.close();
        return received;
    }

    async close() {
        if (this.connection && this.connection.is_open()) {
            this.connection.close();
            await this.closed.next();
        }
    }
}

module.exports = { Client, rhea };
