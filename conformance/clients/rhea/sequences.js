'use strict';
/* Sequenced streams: (id, number, number before) in annotations or application properties, accepted in order and once. */

const { rhea } = require('./client.js');
const { Teller } = require('./halves.js');

const { types } = rhea;
const STREAM = 'stream-1';

const annotated = (id, no, prev, stream = STREAM) => ({
    message_annotations: {
        'x-opt-seq-stream': stream, 'x-opt-seq-id': types.wrap_ulong(id),
        'x-opt-seq-no': types.wrap_uint(no), 'x-opt-seq-prev': types.wrap_uint(prev),
    },
    body: `${id}/${no}`,
});

const stated = (id, no, prev, stream = STREAM) => ({
    application_properties: { seq_stream: stream, seq_id: id, seq_no: no, seq_prev: prev }, body: `${id}/${no}`,
});

function register(check, equal) {
    const sequences = (name, run) => check(`sequences: ${name}`, async (client) => {
        await run(client, new Teller(client, client.queue));
    });

    const arrived = async (client, bodies) => {
        await client.send([{ body: 'the end' }]);
        const receiver = client.receiver({ credit: bodies.length + 1 });
        equal(await receiver.acceptBodies(bodies.length + 1), [...bodies, 'the end'], 'queue');
    };

    const answers = async (sender, messages, expected) => {
        equal(await Promise.all(messages.map((message) => sender.tell(message))), expected, 'outcomes');
    };

    for (const [way, place] of [['message annotations', annotated], ['application properties', stated]]) {
        sequences(`${way}: in order; sent again, accepted and not delivered again`, async (client, sender) => {
            const messages = [place(1, 1, 0), place(1, 2, 1), place(1, 2, 1), place(1, 1, 0), place(1, 5, 2)];
            await answers(sender, messages, Array(5).fill('accepted'));
            await arrived(client, ['1/1', '1/2', '1/5']);
        });

        sequences(`${way}: after a gap everything is refused until it is sent in order`, async (client, sender) => {
            const messages = [place(1, 1, 0), place(1, 3, 2), place(1, 4, 3)];
            await answers(sender, messages, ['accepted', 'seq:gap', 'seq:gap']);
            const { state } = await sender.answer(place(1, 3, 2));
            const { info } = state.error;
            equal([info['seq-id'], info['seq-no'], info['expected-prev']], [1, 1, 1], 'last accepted, expected prev');
            await answers(sender, [place(1, 2, 1), ...messages.slice(1)], Array(3).fill('accepted'));
            await arrived(client, ['1/1', '1/2', '1/3', '1/4']);
        });
    }

    sequences('re-chained over messages that the sender dropped: accepted', async (client, sender) => {
        await answers(sender, [annotated(1, 4, 0), annotated(1, 9, 2)], ['accepted', 'accepted']);
        await arrived(client, ['1/4', '1/9']);
    });

    sequences('a new id; late ones of the old id; a new id without its start', async (client, sender) => {
        const messages = [annotated(1, 1, 0), annotated(7, 1, 0), annotated(1, 1, 0), annotated(1, 2, 1),
            annotated(9, 2, 1), annotated(7, 2, 1)];
        const expected = ['accepted', 'accepted', 'accepted', 'seq:stale', 'seq:gap', 'accepted'];
        await answers(sender, messages, expected);
        await arrived(client, ['1/1', '7/1', '7/2']);
    });

    sequences('fields that are wrong: amqp:invalid-field, and the stream stands', async (client, sender) => {
        const both = { ...annotated(1, 1, 0), application_properties: { seq_no: 2 } };
        const partly = { application_properties: { seq_stream: STREAM, seq_id: 1 }, body: 'partly' };
        const bad = [annotated(0, 1, 0), annotated(1, 0, 0), annotated(1, 2, 2), annotated(1, 1, 0, ''),
            annotated(1, 1, 0, 's'.repeat(129)), stated(1, -1, 0), stated('1', 1, 0), both, partly];
        await answers(sender, bad, bad.map(() => 'amqp:invalid-field'));
        await answers(sender, [annotated(1, 1, 0)], ['accepted']);
        await arrived(client, ['1/1']);
    });

    sequences('streams of one queue, and of two queues, know nothing of each other', async (client, sender) => {
        const other = new Teller(client, `${client.queue}-2`);
        await answers(sender, [annotated(1, 1, 0), annotated(1, 1, 0, 'stream-2')], ['accepted', 'accepted']);
        await answers(other, [annotated(1, 2, 1), annotated(1, 1, 0)], ['seq:gap', 'accepted']);
        await arrived(client, ['1/1', '1/1']);
    });

    sequences('the link names the stream; the answer says where it stands', async (client, sender) => {
        const options = { properties: { 'seq-stream': STREAM } };
        const attach = async () => {
            const teller = new Teller(client, client.queue, options);
            await teller.opened.next();
            return teller;
        };
        const place = ({ link }) => [link.properties['seq-id'], link.properties['seq-no']];
        const first = await attach();
        equal(place(first), [0, 0], 'seq-id, seq-no at first');
        equal([].concat(first.link.target.capabilities), ['tx-sequence'], 'capabilities');
        const message = annotated(3, 8, 0);
        delete message.message_annotations['x-opt-seq-stream'];
        await answers(first, [message], ['accepted']);
        equal(place(await attach()), [3, 8], 'seq-id, seq-no afterwards');
        await answers(sender, [annotated(3, 8, 0)], ['accepted']);
        await arrived(client, ['3/8']);
    });

    sequences('1,000 sent at once with one lost: the rest again, each once, in order', async (client, sender) => {
        const all = Array.from({ length: 1000 }, (_, n) => annotated(1, n + 1, n));
        await sender.ready;
        const outcomes = await Promise.all(all.filter((_, n) => n !== 399).map((message) => sender.tell(message)));
        equal(outcomes.indexOf('seq:gap'), 399, 'first that was refused');
        equal(new Set(outcomes.slice(399)).size, 1, 'and all after it');
        await answers(sender, all.slice(350), all.slice(350).map(() => 'accepted'));
        await arrived(client, all.map((message) => message.body));
    });
}

module.exports = { register };
