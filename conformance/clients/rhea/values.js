'use strict';
/*
 * One table of AMQP values: [name, what rhea is given, what rhea hands out]. Types are compared by octets as well.
 * The tables are made anew for each check, because rhea writes the descriptor of a section into the typed value given.
 */

const { types } = require('rhea');

const eightOctets = (hex) => Buffer.from(hex, 'hex');
const uuid = Buffer.from('0123456789abcdef0123456789abcdef', 'hex');
const longString = 'ü€😀'.repeat(5000);
const longBinary = Buffer.alloc(70000, 'binary\u0000');
const many = Array.from({ length: 300 }, (_, n) => n);
const manyEntries = Object.fromEntries(many.map((n) => [`key-${n}`, n]));

/** What application-properties may hold (part 3.2.5). */
const simple = () => [
    ['null', null, null],
    ['boolean true', true, true],
    ['boolean false', false, false],
    ['boolean in one octet', types.Boolean(1), 1],
    ['ubyte 0', types.wrap_ubyte(0), 0],
    ['ubyte max', types.wrap_ubyte(255), 255],
    ['ushort max', types.wrap_ushort(65535), 65535],
    ['uint 0', types.wrap_uint(0), 0],
    ['uint small', types.wrap_uint(255), 255],
    ['uint max', types.wrap_uint(4294967295), 4294967295],
    ['ulong 0', types.wrap_ulong(0), 0],
    ['ulong small', types.wrap_ulong(255), 255],
    ['ulong max', types.wrap_ulong(eightOctets('ffffffffffffffff')), eightOctets('ffffffffffffffff')],
    ['byte min', types.wrap_byte(-128), -128],
    ['byte max', types.wrap_byte(127), 127],
    ['short min', types.wrap_short(-32768), -32768],
    ['short max', types.wrap_short(32767), 32767],
    ['int min', types.wrap_int(-2147483648), -2147483648],
    ['int small', types.wrap_int(-1), -1],
    ['int max', types.wrap_int(2147483647), 2147483647],
    ['long min', types.wrap_long(eightOctets('8000000000000000')), eightOctets('8000000000000000')],
    ['long small', types.wrap_long(-1), -1],
    ['long max', types.wrap_long(eightOctets('7fffffffffffffff')), eightOctets('7fffffffffffffff')],
    ['float', types.wrap_float(1.5), 1.5],
    ['float infinity', types.wrap_float(Infinity), Infinity],
    ['double', types.wrap_double(0.1), 0.1],
    ['double smallest', types.wrap_double(5e-324), 5e-324],
    ['double NaN', types.wrap_double(NaN), NaN],
    ['decimal32', types.Decimal32(eightOctets('22400005')), eightOctets('22400005')],
    ['decimal64', types.Decimal64(eightOctets('2238000000000005')), eightOctets('2238000000000005')],
    ['decimal128', types.Decimal128(uuid), uuid],
    ['char', types.wrap_char(0x1f600), 0x1f600],
    ['timestamp 0', types.wrap_timestamp(0), new Date(0)],
    ['timestamp before 1970', types.wrap_timestamp(-1000000000000), new Date(-1000000000000)],
    ['timestamp', types.wrap_timestamp(1700000000123), new Date(1700000000123)],
    ['uuid', types.wrap_uuid(uuid), uuid],
    ['binary empty', types.wrap_binary(Buffer.alloc(0)), Buffer.alloc(0)],
    ['binary short', types.wrap_binary(Buffer.from([0, 255, 128])), Buffer.from([0, 255, 128])],
    ['binary long', types.wrap_binary(longBinary), longBinary],
    ['string empty', '', ''],
    ['string short', 'grüße', 'grüße'],
    ['string long', longString, longString],
    ['symbol empty', types.wrap_symbol(''), ''],
    ['symbol short', types.wrap_symbol('amqp:symbol'), 'amqp:symbol'],
    ['symbol long', types.wrap_symbol('s'.repeat(1000)), 's'.repeat(1000)],
];

const compound = () => [
    ['list empty', [], []],
    ['list mixed', [null, true, 'text', types.wrap_ulong(7), [1, []]], [null, true, 'text', 7, [1, []]]],
    ['list of 300', many, many],
    ['map empty', types.wrap_map({}), {}],
    ['map', { a: 1, b: types.wrap_symbol('s') }, { a: 1, b: 's' }],
    ['map with keys of other types', new Map([[types.wrap_ulong(3), 'x'], [true, 'y']]), { 3: 'x', true: 'y' }],
    ['map of 300', manyEntries, manyEntries],
    ['array of ulong', types.wrap_array([0, 255, 65536], types.Ulong.typecode), [0, 255, 65536]],
    ['array of symbol', types.wrap_array(['a', 'b'.repeat(300)], types.Sym32.typecode), ['a', 'b'.repeat(300)]],
    ['array of string', types.wrap_array(['', 'x'], types.Str8.typecode), ['', 'x']],
    ['array empty', types.wrap_array([], types.Int.typecode), []],
    ['described value', types.wrap_described('inner', 'example:label'), 'inner'],
];

module.exports = { simple, compound, uuid, longBinary };
