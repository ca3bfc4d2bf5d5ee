//! One table of AMQP values, each with its name: every primitive type of part 1.6. `Value` keeps the AMQP type.

use fe2o3_amqp_types::primitives::SimpleValue;
use serde_amqp::Value;
use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;
use serde_amqp::primitives::{Array, Binary, Dec32, Dec64, Dec128, OrderedMap, Symbol, Timestamp, Uuid};

pub const UUID: [u8; 16] = *b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef";

pub fn long_string() -> String {
    "ü€😀".repeat(5_000)
}

pub fn long_binary() -> Binary {
    Binary::from((0..=255u8).cycle().take(70_000).collect::<Vec<u8>>())
}

fn binary(octets: &[u8]) -> Value {
    Value::Binary(Binary::from(octets.to_vec()))
}

fn symbol(text: &str) -> Value {
    Value::Symbol(Symbol::from(text))
}

fn string(text: &str) -> Value {
    Value::String(text.to_string())
}

/// What application-properties may hold (part 3.2.5), except null, which has a check of its own.
pub fn simple() -> Vec<(&'static str, Value)> {
    vec![
        ("boolean true", Value::Bool(true)),
        ("boolean false", Value::Bool(false)),
        ("ubyte 0", Value::Ubyte(0)),
        ("ubyte max", Value::Ubyte(u8::MAX)),
        ("ushort max", Value::Ushort(u16::MAX)),
        ("uint 0", Value::Uint(0)),
        ("uint small", Value::Uint(255)),
        ("uint max", Value::Uint(u32::MAX)),
        ("ulong 0", Value::Ulong(0)),
        ("ulong small", Value::Ulong(255)),
        ("ulong max", Value::Ulong(u64::MAX)),
        ("byte min", Value::Byte(i8::MIN)),
        ("byte max", Value::Byte(i8::MAX)),
        ("short min", Value::Short(i16::MIN)),
        ("short max", Value::Short(i16::MAX)),
        ("int min", Value::Int(i32::MIN)),
        ("int small", Value::Int(-1)),
        ("int max", Value::Int(i32::MAX)),
        ("long min", Value::Long(i64::MIN)),
        ("long small", Value::Long(-1)),
        ("long max", Value::Long(i64::MAX)),
        ("float", Value::Float(1.5.into())),
        ("float infinity", Value::Float(f32::INFINITY.into())),
        ("double", Value::Double(0.1.into())),
        ("double smallest", Value::Double(5e-324.into())),
        ("double NaN", Value::Double(f64::NAN.into())),
        ("decimal32", Value::Decimal32(Dec32::from([0x22, 0x40, 0x00, 0x05]))),
        ("decimal64", Value::Decimal64(Dec64::from([0x22, 0x38, 0, 0, 0, 0, 0, 5]))),
        ("decimal128", Value::Decimal128(Dec128::from(UUID))),
        ("char ASCII", Value::Char('a')),
        ("char beyond the BMP", Value::Char('😀')),
        ("timestamp 0", Value::Timestamp(Timestamp::from_milliseconds(0))),
        ("timestamp before 1970", Value::Timestamp(Timestamp::from_milliseconds(-1_000_000_000_000))),
        ("timestamp", Value::Timestamp(Timestamp::from_milliseconds(1_700_000_000_123))),
        ("uuid", Value::Uuid(Uuid::from(UUID))),
        ("binary empty", binary(b"")),
        ("binary short", binary(b"\x00\xff\x80")),
        ("binary long", Value::Binary(long_binary())),
        ("string empty", string("")),
        ("string short", string("grüße")),
        ("string long", Value::String(long_string())),
        ("symbol empty", symbol("")),
        ("symbol short", symbol("amqp:symbol")),
        ("symbol long", symbol(&"s".repeat(1_000))),
    ]
}

pub fn compound() -> Vec<(&'static str, Value)> {
    let mixed = vec![Value::Null, Value::Ubyte(7), string("text"), Value::List(vec![Value::List(vec![])])];
    let keys = [
        (string("s"), Value::Long(1)),
        (symbol("y"), Value::Null),
        (Value::Ulong(3), Value::List(vec![Value::Bool(true)])),
        (Value::Bool(true), binary(b"bin")),
    ];
    let many = (0..300).map(|n| (Value::String(format!("key-{n}")), Value::Int(n)));
    let described = Described { descriptor: Descriptor::Name(Symbol::from("example:label")), value: string("inner") };
    vec![
        ("list empty", Value::List(vec![])),
        ("list mixed", Value::List(mixed)),
        ("list of 300", Value::List((0..300).map(Value::Int).collect())),
        ("map empty", Value::Map(OrderedMap::new())),
        ("map with keys of several types", Value::Map(OrderedMap::from_iter(keys))),
        ("map of 300", Value::Map(OrderedMap::from_iter(many))),
        ("array of ulong", Value::Array(Array(vec![Value::Ulong(0), Value::Ulong(u64::MAX)]))),
        ("array of boolean", Value::Array(Array(vec![Value::Bool(true), Value::Bool(false)]))),
        ("array of string", Value::Array(Array(vec![string(""), string("x")]))),
        ("array of symbol", Value::Array(Array(vec![symbol("a"), symbol(&"b".repeat(300))]))),
        ("array of uuid", Value::Array(Array(vec![Value::Uuid(Uuid::from(UUID))]))),
        ("array of timestamp", Value::Array(Array(vec![Value::Timestamp(Timestamp::from_milliseconds(1))]))),
        ("described value", Value::Described(Box::new(described))),
    ]
}

/// The simple values once more, in the type that this library has for application-properties.
pub fn as_simple(value: &Value) -> SimpleValue {
    SimpleValue::try_from(value.clone()).expect("the table of simple values holds simple values only")
}
