'use strict';
/*
 * The half-message dialogue: put to $half/<group>/<queue>, resolve at $half-resolve/<group>, be asked on
 * $half-check/<group>, by message or by outcome. Each check has its own group, named as its queue.
 */

const { Client, rhea } = require('./client.js');
const { uuid } = require('./values.js');

const { message: sections, types } = rhea;
const SOON = { half_first_check_ms: 100 };
const CHECK_BODY_BYTES = 256 * 1024;
const LARGE_BODY_BYTES = 1024 * 1024;
const UNSETTLED = { snd_settle_mode: 0 };
const show = (id) => JSON.stringify(id);
const OUTCOMES = ['accepted', 'rejected', 'released', 'modified'];

/** A sending link that tells what became of each message. */
class Teller {
    constructor(client, address, options = {}) {
        this.outcomes = new Map(); // of each delivery: the mailbox in which its outcome will be
        this.client = client;
        this.sendable = client.mailbox(`credit at ${address}`);
        this.refused = client.mailbox(`detach of ${address}`);
        this.opened = client.mailbox(`attach of ${address}`);
        this.link = client.connection.open_sender({ target: { address }, ...options });
        for (const outcome of OUTCOMES) {
            this.link.on(outcome, ({ delivery }) => {
                this.outcomes.get(delivery).put({ outcome, state: delivery.remote_state || {} });
                this.outcomes.delete(delivery);
            });
        }
        this.link.on('sender_open', () => this.opened.put());
        this.link.on('sender_error', () => this.refused.put(this.link.error.condition));
        this.link.once('sendable', () => this.sendable.put());
        this.ready = this.sendable.next();
        this.ready.catch(() => {}); // of a link that is refused nobody waits for credit
    }

    /** The outcome: "accepted", or the condition of the error with which the message was refused. */
    async tell(message) {
        const { outcome, state } = await this.answer(message);
        return outcome === 'rejected' ? state.error.condition : outcome;
    }

    async answer(message) {
        await this.ready;
        const outcome = this.client.mailbox('outcome');
        this.outcomes.set(this.link.send(message), outcome);
        return outcome.next();
    }
}

/** The links of one group; the queue is the client's own. */
class Halves {
    constructor(client, group = client.queue) {
        this.client = client;
        this.group = group;
        this.putAddress = `$half/${group}/${client.queue}`;
        this.resolveAddress = `$half-resolve/${group}`;
        this.checkAddress = `$half-check/${group}`;
    }

    teller(address, options) { return new Teller(this.client, address, options); }

    put(message) {
        this.putter = this.putter || this.teller(this.putAddress);
        return this.putter.tell(message);
    }

    resolve(id, subject, more) {
        this.resolver = this.resolver || this.teller(this.resolveAddress);
        return this.resolver.tell({ correlation_id: id, subject, body: '', ...more });
    }

    commit(id) { return this.resolve(id, 'commit'); }

    rollBack(id) { return this.resolve(id, 'rollback'); }

    /** A link on which the broker asks. */
    async checker(options = {}, way = '') {
        const receiver = this.client.receiver({ source: { address: this.checkAddress + way }, ...options });
        await receiver.opened.next();
        return receiver;
    }
}

const half = (id, body = `body of ${id}`, named = undefined) => (
    { message_id: id, body, ...(named && { application_properties: named }) }
);

function register(check, equal, equalOctets) {
    const halves = (name, run, options) => check(`half messages: ${name}`, (client) => run(new Halves(client)), options);

    /** What the queue has now: everything before a message that is sent after it. */
    async function queued({ client }) {
        await client.send([{ body: 'the end' }]);
        const receiver = client.receiver({ credit: 101 });
        const bodies = [];
        for (let body = ''; body !== 'the end'; bodies.push(body)) ({ body } = await receiver.accept());
        await receiver.close();
        return bodies.slice(0, -1);
    }

    async function prepared(group, id, named, body) {
        equal(await group.put(half(id, body, named)), 'accepted', 'put');
    }

    /** The next check, which must be about this one. */
    async function asked(receiver, id) {
        const context = await receiver.receive();
        equal([context.message.correlation_id, context.message.subject], [id, 'check'], 'correlation-id, subject');
        return context;
    }

    /** The next checks, one for each of these; what is due in the same millisecond has no order. */
    async function askedAbout(receiver, ...ids) {
        const found = new Map();
        for (const _ of ids) {
            const context = await receiver.receive();
            found.set(show(context.message.correlation_id), context);
        }
        equal([...found.keys()].sort(), ids.map(show).sort(), 'correlation-ids');
        return ids.map((id) => found.get(show(id)));
    }

    halves('nobody sees one that was put; committed, it is delivered octet for octet', async (group) => {
        const { client } = group;
        const named = { color: 'blue', size: types.wrap_ulong(7) };
        const sent = { ...half('1', 'the body', named), user_id: Buffer.from('me'), subject: 's', group_id: 'g' };
        equal(await group.put(sent), 'accepted', 'put');
        await client.send([{ body: 'later' }]);
        const browser = client.receiver({ snd_settle_mode: 1, source: { distribution_mode: 'copy' } });
        equal((await browser.receive()).message.body, 'later', 'first that a browser sees');
        const consumer = client.receiver();
        equal((await consumer.accept()).body, 'later', 'first that a consumer gets');
        equal(await group.commit('1'), 'accepted', 'commit');
        const received = await consumer.accept();
        equal([received.body, received.subject], ['the body', 's'], 'body, subject');
        equal(received.application_properties, { color: 'blue', size: 7 }, 'application properties');
        equal(received.message_annotations['x-opt-half-id'], '1', 'x-opt-half-id');
        equalOctets(received, sent);
    });

    halves('rolled back, it is never delivered', async (group) => {
        await prepared(group, '1');
        equal(await group.rollBack('1'), 'accepted', 'rollback');
        equal(await queued(group), [], 'queue');
    });

    halves('put again: accepted, one message', async (group) => {
        for (let time = 0; time < 3; time += 1) await prepared(group, '1');
        equal(await group.commit('1'), 'accepted', 'commit');
        equal(await queued(group), ['body of 1'], 'queue');
    });

    halves('commit and rollback again: accepted, delivered once', async (group) => {
        await prepared(group, '1');
        await prepared(group, '2');
        for (let time = 0; time < 3; time += 1) {
            equal([await group.commit('1'), await group.rollBack('2')], ['accepted', 'accepted'], 'outcomes');
        }
        equal(await queued(group), ['body of 1'], 'queue');
    });

    halves('the opposite of what was decided: half:conflict, and by whom', async (group) => {
        await prepared(group, '1');
        await prepared(group, '2');
        equal([await group.commit('1'), await group.rollBack('2')], ['accepted', 'accepted'], 'outcomes');
        for (const [id, subject, state] of [['1', 'rollback', 'committed'], ['2', 'commit', 'rolled back']]) {
            const { outcome, state: told } = await group.resolver.answer({ correlation_id: id, subject, body: '' });
            equal(outcome, 'rejected', 'outcome');
            const { condition, description, info } = told.error;
            equal(condition, 'half:conflict', 'condition');
            equal(info.half_state.replace('-', ' '), state, 'half_state');
            equal([info.half_resolved_by, Number(info.half_resolved_at) > 1.7e12], ['producer', true], 'by, at');
            equal(description.includes(info.half_state), true, 'the description has the state');
        }
        equal(await queued(group), ['body of 1'], 'queue');
    });

    halves('put with other content, or when it is decided: half:id-conflict, half:conflict', async (group) => {
        await prepared(group, '1');
        equal(await group.put(half('1', 'other')), 'half:id-conflict', 'other content');
        const other = group.teller(`${group.putAddress}-2`);
        equal(await other.tell(half('1')), 'half:id-conflict', 'other destination');
        equal(await group.commit('1'), 'accepted', 'commit');
        equal(await group.put(half('1')), 'half:conflict', 'put after the commit');
        await prepared(group, '2');
        equal(await group.rollBack('2'), 'accepted', 'rollback');
        equal(await group.put(half('2')), 'half:conflict', 'put after the rollback');
        equal(await queued(group), ['body of 1'], 'queue');
    });

    halves('put without an id: half:id-required', async (group) => {
        equal(await group.put({ body: 'no id' }), 'half:id-required', 'neither');
        equal(await group.put(half('')), 'half:id-required', 'an empty one');
        equal(await group.put(half('x'.repeat(257))), 'half:id-required', 'one of 257 octets');
        await prepared(group, 'x'.repeat(256));
    });

    halves('unknown id: half:unknown-id, and the link goes on', async (group) => {
        await prepared(group, '1');
        const elsewhere = new Halves(group.client, `${group.group}-2`);
        equal([await group.commit('2'), await group.rollBack('2')], Array(2).fill('half:unknown-id'), 'id');
        equal(await elsewhere.commit('1'), 'half:unknown-id', 'another group');
        equal(await group.commit('1'), 'accepted', 'commit');
    });

    halves('another subject, no correlation-id: amqp:invalid-field', async (group) => {
        await prepared(group, '1');
        equal(await group.resolve('1', 'Commit'), 'amqp:invalid-field', 'another subject');
        equal(await group.resolve('1', undefined), 'amqp:invalid-field', 'no subject');
        equal(await group.resolve(undefined, 'commit'), 'amqp:invalid-field', 'no correlation-id');
        equal(await group.rollBack('1'), 'accepted', 'rollback');
    });

    halves('ids of every type are told apart', async (group) => {
        const ids = [types.wrap_ulong(7), '7', uuid, types.wrap_binary(uuid), uuid.toString('hex')];
        for (const [n, id] of ids.entries()) await prepared(group, id, undefined, n);
        for (const n of [3, 0, 4]) equal(await group.commit(ids[n]), 'accepted', 'commit');
        for (const n of [1, 2]) equal(await group.rollBack(ids[n]), 'accepted', 'rollback');
        equal(await queued(group), [3, 0, 4], 'queue');
    });

    halves('the application property half_id goes before the message-id', async (group) => {
        await prepared(group, 'message-1', { half_id: 'order-1' });
        equal(await group.commit('message-1'), 'half:unknown-id', 'by message-id');
        equal(await group.commit('order-1'), 'accepted', 'by half_id');
        const received = await group.client.receiver().accept();
        equal(received.message_id, 'message-1', 'message-id');
        equal(received.application_properties, { half_id: 'order-1' }, 'application properties');
        equal(received.message_annotations['x-opt-half-id'], 'order-1', 'x-opt-half-id');
    });

    halves('reserved names and other values are refused, not dropped', async (group) => {
        for (const [name, value, condition] of [
            ['half_other', 1, 'amqp:not-allowed'], ['seq_id', 1, 'amqp:not-allowed'],
            ['half_first_check_ms', 'soon', 'amqp:invalid-field'], ['half_first_check_ms', -1, 'amqp:invalid-field'],
            ['half_max_age_ms', 14400001, 'amqp:invalid-field'], ['half_id', 7, 'amqp:invalid-field'],
        ]) equal(await group.put(half('1', 'body', { [name]: value })), condition, name);
        const delayed = { ...half('1'), message_annotations: { 'x-opt-delivery-delay': types.wrap_ulong(1000) } };
        equal(await group.put(delayed), 'amqp:not-allowed', 'x-opt-delivery-delay');
        equal(await group.commit('1'), 'half:unknown-id', 'commit');
    });

    halves('settled puts and resolutions are refused', async (group) => {
        for (const address of [group.putAddress, group.resolveAddress]) {
            const settled = group.teller(address, { snd_settle_mode: 1 });
            equal(await settled.refused.next(), 'amqp:not-allowed', 'attach with snd-settle-mode settled');
            const mixed = group.teller(address);
            await mixed.ready;
            const delivery = mixed.link.send({ ...half('1'), correlation_id: '1', subject: 'commit' });
            delivery.settled = true; // rhea writes at the next tick
            equal(await mixed.refused.next(), 'amqp:not-allowed', 'settled transfer');
        }
        equal(await group.commit('1'), 'half:unknown-id', 'commit');
    });

    halves('the answer to the attach; bad addresses and wrong ends refused', async (group) => {
        const told = (link, terminus) => [link.properties['half-version'], [].concat(terminus.capabilities)];
        for (const address of [group.putAddress, group.resolveAddress]) {
            const { link, opened } = group.teller(address, UNSETTLED);
            await opened.next();
            equal(told(link, link.target), [1, ['half-messages']], 'half-version, capabilities');
        }
        const { link } = await group.checker();
        equal(told(link, link.source), [1, ['half-messages']], 'half-version, capabilities');
        equal(link.source.distribution_mode, 'move', 'distribution-mode');
        equal(link.source.default_outcome.descriptor.value, 0x26, 'default-outcome released');
        const bad = ['$half', '$half/g', '$half/g/', '$half/a b/q', `$half/${'g'.repeat(65)}/q`, '$half-resolve/',
            '$half-resolve/g/q', '$half-commit/g'];
        for (const address of bad) {
            equal(await group.teller(address).refused.next(), 'amqp:not-found', address);
        }
        equal(await group.teller(group.checkAddress).refused.next(), 'amqp:not-allowed', 'a sender to the checks');
    });

    halves('asked; the check says everything; answered by message', async (group) => {
        const receiver = await group.checker();
        await prepared(group, '1', { color: 'blue', ...SOON }, 'the body');
        const { message, delivery } = await asked(receiver, '1');
        equal([message.body, message.reply_to], ['the body', group.resolveAddress], 'body, reply-to');
        equal([typeof message.message_id, message.message_id === '1'], ['string', false], 'message-id');
        const named = message.application_properties;
        equal([named.color, named.half_id, named.half_group], ['blue', '1', group.group], 'color, half_id, half_group');
        equal([named.half_destination, named.half_attempt], [group.client.queue, 1], 'half_destination, half_attempt');
        equal(named.half_age_ms >= 100 && named.half_age_ms < 20000, true, 'half_age_ms');
        equal(Math.abs(named.half_deadline - Date.now() - 4 * 3600000) < 60000, true, 'half_deadline in 4 h');
        equal(await group.rollBack('2'), 'half:unknown-id', 'another');
        const replies = group.teller(message.reply_to);
        const answer = { correlation_id: message.correlation_id, subject: 'commit', body: '' };
        equal(await replies.tell(answer), 'accepted', 'answer');
        equal((await receiver.settled.next()).id, delivery.id, 'the outstanding check is settled by the broker');
        equal(await queued(group), ['the body'], 'queue');
    });

    halves('asked about ids of every type, answered with what the check carries', async (group) => {
        const receiver = await group.checker();
        const ids = [types.wrap_ulong(7), uuid, '7'];
        for (const [n, id] of ids.entries()) await prepared(group, id, SOON, n);
        const checks = await askedAbout(receiver, 7, uuid, '7');
        for (const [n, { message, delivery }] of checks.entries()) {
            equal(message.body, n, 'body');
            equal(await group.resolve(message.correlation_id, n % 2 ? 'rollback' : 'commit'), 'accepted', 'answer');
            delivery.accept();
        }
        equal(await queued(group), [0, 2], 'queue');
    });

    halves('a receiver that accepts automatically decides nothing', async (group) => {
        const receiver = await group.checker({ autoaccept: true, credit_window: 10, credit: 0 });
        await prepared(group, '1', SOON);
        await asked(receiver, '1');
        await group.client.send([{ body: 'behind the accept' }]);
        equal(await group.rollBack('1'), 'accepted', 'rollback after the accept');
        equal(await queued(group), ['behind the accept'], 'queue');
    });

    halves('rejected without by-outcome decides nothing', async (group) => {
        const receiver = await group.checker();
        await prepared(group, '1', SOON);
        (await asked(receiver, '1')).delivery.reject({ condition: 'app:no' });
        equal(await group.commit('1'), 'accepted', 'commit after the rejection');
        equal(await queued(group), ['body of 1'], 'queue');
    });

    halves('by outcome: accepted commits, also automatically', async (group) => {
        const receiver = await group.checker({ autoaccept: true }, '/by-outcome');
        const consumer = group.client.receiver();
        await prepared(group, '1', SOON);
        await asked(receiver, '1');
        equal((await consumer.accept()).body, 'body of 1', 'delivered');
        equal([await group.commit('1'), await group.rollBack('1')], ['accepted', 'half:conflict'], 'afterwards');
        const { state } = await group.resolver.answer({ correlation_id: '1', subject: 'rollback', body: '' });
        equal(state.error.info.half_resolved_by, 'check', 'half_resolved_by');
    });

    halves('by outcome: rejected rolls back; the settlement comes after it is stored', async (group) => {
        const receiver = await group.checker({ rcv_settle_mode: 1 }, '/by-outcome');
        await prepared(group, '1', SOON);
        const { delivery } = await asked(receiver, '1');
        delivery.reject({ condition: 'app:failed', description: 'no money' });
        equal((await receiver.settled.next()).id, delivery.id, 'settled delivery');
        equal([await group.rollBack('1'), await group.commit('1')], ['accepted', 'half:conflict'], 'afterwards');
        equal(await queued(group), [], 'queue');
    });

    halves('by outcome: released is asked again after a second as the same attempt; modified not', async (group) => {
        const receiver = await group.checker({}, '/by-outcome');
        await prepared(group, '1', SOON);
        await prepared(group, '2', SOON);
        const [first, second] = await askedAbout(receiver, '1', '2');
        first.delivery.release();
        second.delivery.modified({ delivery_failed: true });
        const { message, delivery } = await asked(receiver, '1');
        equal(message.application_properties.half_attempt, 1, 'half_attempt');
        delivery.modified({ undeliverable_here: true });
        equal([await group.commit('1'), await group.rollBack('2')], ['accepted', 'accepted'], 'by message');
        equal(await queued(group), ['body of 1'], 'queue');
    });

    halves('no credit, no check; asked at once when there is some', async (group) => {
        const receiver = await group.checker({ credit: 0 });
        await prepared(group, '1', { half_first_check_ms: 0 });
        receiver.link.add_credit(1);
        const { message, delivery } = await asked(receiver, '1');
        equal(message.application_properties.half_attempt, 1, 'half_attempt');
        delivery.accept();
        await prepared(group, '2', { half_first_check_ms: 0 });
        equal(await group.commit('3'), 'half:unknown-id', 'another');
        equal(receiver.messages.arrived.length, 0, 'checks beyond the credit');
        receiver.link.add_credit(1);
        await asked(receiver, '2');
    });

    /** Another connection with the same queue and group, and a container-id of its own. */
    async function another({ client }) {
        const other = new Client(client.url);
        other.queue = client.queue;
        return new Halves(await other.connect());
    }

    halves('by another connection, when the producer is gone', async (group) => {
        await prepared(group, '1');
        await group.client.close();
        const other = await another(group);
        equal(await other.commit('1'), 'accepted', 'commit');
        equal(await queued(other), ['body of 1'], 'queue');
        await other.client.close();
    });

    halves('by outcome: a connection that is cut decides nothing; another is asked', async (group) => {
        const other = await another(group);
        const receiver = await other.checker({}, '/by-outcome');
        await prepared(group, '1', { half_first_check_ms: 0 });
        await asked(receiver, '1');
        const here = await group.checker();
        other.client.connection.socket.destroy();
        const { message } = await asked(here, '1');
        equal(message.application_properties.half_attempt, 1, 'half_attempt');
        equal(await group.rollBack('1'), 'accepted', 'rollback');
        equal(await queued(group), [], 'queue');
    });

    halves('first the container that put it is asked', async (group) => {
        const other = await another(group);
        const others = [await other.checker(), await group.checker(), await other.checker()];
        for (const id of ['1', '2', '3', '4']) await prepared(group, id, SOON);
        await askedAbout(others[1], '1', '2', '3', '4');
        equal(others.map((receiver) => receiver.messages.arrived.length), [0, 0, 0], 'asked elsewhere');
        await other.client.close();
    });

    halves('a large body comes whole when it is committed, and is left out of the check', async (group) => {
        const body = sections.data_section(Buffer.alloc(LARGE_BODY_BYTES, 'half'));
        const receiver = await group.checker();
        await prepared(group, 'small', SOON, 'x'.repeat(CHECK_BODY_BYTES - 1024));
        await prepared(group, 'large', SOON, body);
        const [small, large] = (await askedAbout(receiver, 'small', 'large')).map(({ message }) => message);
        const given = [small.body.length, small.application_properties.half_body_omitted];
        equal(given, [CHECK_BODY_BYTES - 1024, undefined], 'length, half_body_omitted');
        equal(large.application_properties.half_body_omitted, true, 'half_body_omitted');
        equal(await group.commit('large'), 'accepted', 'commit');
        const received = await group.client.receiver({ credit: 1 }).accept();
        equal(received.body.content.equals(body.content), true, 'same octets');
    });

    halves('the order of the queue is that of the commits', async (group) => {
        const ids = Array.from({ length: 100 }, (_, n) => String(n));
        await Promise.all(ids.map((id) => prepared(group, id)));
        const order = ids.map((_, n) => ids[(n * 37) % 100]);
        equal(await Promise.all(order.map((id) => group.commit(id))), ids.map(() => 'accepted'), 'commits');
        equal(await queued(group), order.map((id) => `body of ${id}`), 'queue');
    });

    halves('at the same time from two connections: one is accepted, the other told half:conflict', async (group) => {
        const other = await another(group);
        const ids = Array.from({ length: 50 }, (_, n) => String(n));
        await Promise.all(ids.map((id) => prepared(group, id)));
        const pairs = await Promise.all(ids.map((id) => Promise.all([group.commit(id), other.rollBack(id)])));
        for (const pair of pairs) equal([...pair].sort(), ['accepted', 'half:conflict'], 'outcomes');
        const committed = ids.filter((_, n) => pairs[n][0] === 'accepted').map((id) => `body of ${id}`);
        equal((await queued(group)).sort(), committed.sort(), 'queue');
        await other.client.close();
    });

    halves('through the anonymous terminus', async (group) => {
        await group.client.send([{ body: 'the queue is there' }]);
        const anonymous = group.teller(undefined);
        const put = { ...half('1'), to: group.putAddress };
        equal(await anonymous.tell(put), 'accepted', 'put');
        const commit = { to: group.resolveAddress, correlation_id: '1', subject: 'commit', body: '' };
        equal(await anonymous.tell(commit), 'accepted', 'commit');
        equal(await anonymous.tell({ ...commit, subject: 'rollback' }), 'half:conflict', 'rollback');
        equal(await queued(group), ['the queue is there', 'body of 1'], 'queue');
    });
}

module.exports = { register, Teller };
