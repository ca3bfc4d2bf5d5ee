'use strict';
// Logs in as each line of standard input says; README.md has the lines and the answers.

const fs = require('fs');
const readline = require('readline');
const rhea = require('rhea');

const PATIENCE_MS = 60_000;

// RFC 7628. rhea takes mechanisms of its users by name.
function bearer(proof) {
    return {
        start: (callback) => callback(undefined, Buffer.from(`n,,\x01auth=Bearer ${proof}\x01\x01`)),
        step: (challenge, callback) => callback(undefined, Buffer.from('\x01')),
    };
}

function how([address, mechanism, user, proof]) {
    const url = new URL(address);
    const options = { host: url.hostname, port: Number(url.port), reconnect: false };
    if (url.protocol.startsWith('ws')) {
        const connect = rhea.websocket_connect(require('ws'));
        options.connection_details = connect(address, ['amqp'], {});
    } else if (url.protocol === 'amqps:') {
        options.transport = 'tls';
    }
    if (mechanism === 'EXTERNAL') {
        const pem = fs.readFileSync(proof);
        return { ...options, cert: pem, key: pem, enable_sasl_external: true };
    }
    if (mechanism === 'OAUTHBEARER') return { ...options, sasl_mechanisms: { OAUTHBEARER: () => bearer(proof) } };
    if (mechanism === 'XOAUTH2') return { ...options, username: user, token: proof };
    if (mechanism === 'PLAIN') return { ...options, username: user, password: proof };
    return { ...options, username: 'me' };
}

function logIn(fields) {
    return new Promise((resolve, reject) => {
        const container = rhea.create_container();
        const timer = setTimeout(() => reject(new Error('no answer')), PATIENCE_MS);
        for (const event of ['connection_error', 'connection_close', 'sender_error', 'rejected', 'disconnected', 'error']) {
            container.on(event, (context) => {
                clearTimeout(timer);
                reject(context.error || (context.connection && context.connection.error) || new Error(`${event} ${context}`));
            });
        }
        container.once('sendable', (context) => context.sender.send({ body: 'hello' }));
        container.once('accepted', (context) => {
            clearTimeout(timer);
            resolve(context.connection);
        });
        container.connect(how(fields)).open_sender('greetings');
    });
}

function closed(connection) {
    return new Promise((resolve) => {
        connection.once('connection_close', resolve);
        connection.close();
    });
}

async function main() {
    const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
    for (let line = await lines.next(); !line.done; line = await lines.next()) {
        try {
            const connection = await logIn(line.value.split('\t'));
            console.log('in');
            await lines.next();
            await closed(connection);
            console.log('out');
        } catch (error) {
            console.log(`refused ${String(error).replaceAll('\n', ' ')}`);
        }
    }
    process.exit(0);
}

main();
