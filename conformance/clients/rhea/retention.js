'use strict';
/* Reading by offset, cursors and $retained. Queues that retain are those whose names begin with AMQP_RETAINED_PREFIX. */

const { rhea } = require('./client.js');

const { types } = rhea;
const PREFIX = process.env.AMQP_RETAINED_PREFIX;
const COUNT = 20;

const filter = (name, value) => ({ [name]: types.wrap_described(value, name) });
const from = (value) => filter('rabbitmq:stream-offset-spec', value);
const offsetOf = (context) => Number(context.message.message_annotations['x-stream-offset']);
const range = (first, until) => Array.from({ length: until - first }, (_, index) => first + index);

function register(check, equal) {
    if (!PREFIX) return;

    const retained = (name, run) => check(`retained: ${name}`, async (client) => {
        client.queue = PREFIX + client.queue;
        await client.send(range(0, COUNT).map((body) => ({ body })));
        await run(client);
    });

    const reader = (client, asked, options = {}) => client.receiver({
        credit: 100, ...options, source: { distribution_mode: 'copy', filter: asked },
    });

    const offsets = async (link, count) => {
        const found = [];
        while (found.length < count) found.push(offsetOf(await link.receive()));
        return found;
    };

    const ask = async (client, subject, body) => {
        if (!client.replies) {
            client.replies = client.receiver({ source: { address: undefined, dynamic: true } });
            await client.replies.opened.next();
            client.asks = client.connection.open_sender({ target: { address: '$retained' } });
            const sendable = client.mailbox('credit of $retained');
            client.asks.on('sendable', () => sendable.put());
            await sendable.next();
        }
        const reply_to = client.replies.link.source.address;
        client.asks.send({ subject, reply_to, correlation_id: subject, body });
        const { message, delivery } = await client.replies.receive();
        delivery.accept();
        equal([message.subject, message.correlation_id], ['ok', subject], 'subject and correlation-id');
        return message.body;
    };

    retained('from the first, an offset, the last and the next message, settled or not', async (client) => {
        const consumer = client.receiver({ credit: 5 });
        await consumer.acceptBodies(5);
        await consumer.close();
        equal(await offsets(reader(client, from('first')), COUNT), range(0, COUNT), 'first');
        equal(await offsets(reader(client, from(types.wrap_ulong(7))), COUNT - 7), range(7, COUNT), 'offset 7');
        equal(await offsets(reader(client, from('last')), 1), [COUNT - 1], 'last');
        const next = reader(client, from('next'));
        await next.opened.next();
        await client.send([{ body: 'new' }]);
        equal(await offsets(next, 1), [COUNT], 'next');
    });

    retained('from a time; the filter is echoed', async (client) => {
        const link = reader(client, from(types.wrap_timestamp(1)));
        await link.opened.next();
        equal(Object.keys(link.link.source.filter), ['rabbitmq:stream-offset-spec'], 'filter of the answer');
        equal(await offsets(link, COUNT), range(0, COUNT), 'offsets');
    });

    retained('exactly a range, pre-settled', async (client) => {
        const asked = { ...from(types.wrap_ulong(3)), ...filter('amqp-broker:until', types.wrap_ulong(9)) };
        const link = reader(client, asked, { snd_settle_mode: 1 });
        equal(await offsets(link, 6), range(3, 9), 'offsets');
        await client.send([{ body: 'later' }]);
        equal(link.messages.arrived.length, 0, 'more than the range');
    });

    retained('accepted moves a cursor, and $retained tells where it stands', async (client) => {
        const cursor = `${client.queue}-cursor`;
        const asked = { ...from('first'), ...filter('amqp-broker:cursor', cursor) };
        const link = reader(client, asked, { credit: 8 });
        for (let index = 0; index < 8; index += 1) (await link.receive()).delivery.accept();
        const { nodes } = await ask(client, 'describe', { address: client.queue });
        equal([Number(nodes[0].first), Number(nodes[0].next)], [0, COUNT], 'first and next');
        let stands = 0;
        while (stands < 8) {
            const { positions } = await ask(client, 'cursor', { cursor });
            stands = Number(positions[client.queue] || 0);
        }
        equal(stands, 8, 'the cursor');
        await link.close();
        equal(await offsets(reader(client, asked), 1), [8], 'the next link begins there');
    });
}

module.exports = { register };
