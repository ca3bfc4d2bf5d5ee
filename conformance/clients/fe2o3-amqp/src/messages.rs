//! The checks of what a message carries.

use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::{
    AmqpSequence, ApplicationProperties, Body, Data, Footer, Header, MessageAnnotations, MessageId, Priority,
    Properties,
};
use fe2o3_amqp_types::primitives::SimpleValue;
use serde_amqp::Value;
use serde_amqp::extensions::TransparentVec;
use serde_amqp::primitives::{Binary, OrderedMap, Symbol, Timestamp, Uuid};

use crate::client::{AnyMessage, Checked, Client, expect, text, value, with_body};
use crate::values;

pub async fn amqp_value(mut client: Client, sent: Value) -> Checked<Client> {
    let received = client.round_trip(value(sent.clone())).await?;
    expect("body", value(sent).body, received.body)?;
    Ok(client)
}

pub async fn application_properties(mut client: Client) -> Checked<Client> {
    let mut sent = OrderedMap::new();
    sent.insert("null".to_string(), SimpleValue::Null);
    for (name, value) in values::simple() {
        sent.insert(name.to_string(), values::as_simple(&value));
    }
    let sent = ApplicationProperties(sent);
    let message = AnyMessage { application_properties: Some(sent.clone()), ..text("b") };
    let received = client.round_trip(message).await?;
    expect("application-properties", Some(sent), received.application_properties)?;
    Ok(client)
}

pub async fn message_annotations(mut client: Client) -> Checked<Client> {
    let mut sent = OrderedMap::new();
    for (name, value) in values::simple().into_iter().chain(values::compound()) {
        sent.insert(OwnedKey::Symbol(Symbol::from(format!("x-opt-{name}"))), value);
    }
    let message = AnyMessage { message_annotations: Some(MessageAnnotations(sent.clone())), ..text("b") };
    let received = client.round_trip(message).await?.message_annotations.unwrap_or_default();
    for (key, value) in sent {
        expect(&format!("{key:?}"), Some(&value), received.0.get(&key))?;
    }
    Ok(client)
}

pub async fn footer(mut client: Client) -> Checked<Client> {
    let mut sent = OrderedMap::new();
    sent.insert(OwnedKey::Symbol(Symbol::from("x-opt-sum")), Value::Ulong(77));
    let received = client.round_trip(AnyMessage { footer: Some(Footer(sent.clone())), ..text("b") }).await?;
    expect("footer", Some(Footer(sent)), received.footer)?;
    Ok(client)
}

pub async fn data_bodies(mut client: Client) -> Checked<Client> {
    let one = Data(Binary::from(b"one".to_vec()));
    let empty = Data(Binary::from(Vec::new()));
    for sections in [vec![one.clone()], vec![empty.clone()], vec![one, empty, Data(values::long_binary())]] {
        let body = Body::Data(TransparentVec::new(sections));
        let received = client.round_trip(with_body(body.clone())).await?;
        expect("data", body, received.body)?;
    }
    Ok(client)
}

pub async fn sequence_bodies(mut client: Client) -> Checked<Client> {
    let one = AmqpSequence(vec![Value::Long(1), Value::Null, Value::String("two".to_string())]);
    let nested = AmqpSequence(vec![Value::List(vec![Value::Ubyte(3)])]);
    for sections in [vec![one.clone()], vec![one, AmqpSequence(vec![]), nested]] {
        let body = Body::Sequence(TransparentVec::new(sections));
        let received = client.round_trip(with_body(body.clone())).await?;
        expect("amqp-sequence", body, received.body)?;
    }
    Ok(client)
}

pub async fn all_properties(mut client: Client) -> Checked<Client> {
    let sent = Properties::builder()
        .message_id(MessageId::String("message-1".to_string()))
        .user_id(Binary::from(b"user\x00id".to_vec()))
        .to("somewhere")
        .subject("subject")
        .reply_to("replies")
        .correlation_id(MessageId::String("correlation-1".to_string()))
        .content_type("text/plain")
        .content_encoding("gzip")
        .absolute_expiry_time(Timestamp::from_milliseconds(4_000_000_000_125))
        .creation_time(Timestamp::from_milliseconds(1_700_000_000_250))
        .group_id("group".to_string())
        .group_sequence(u32::MAX)
        .reply_to_group_id("reply-group".to_string())
        .build();
    let received = client.round_trip(AnyMessage { properties: Some(sent.clone()), ..text("b") }).await?;
    expect("properties", Some(sent), received.properties)?;
    Ok(client)
}

pub async fn message_ids(mut client: Client) -> Checked<Client> {
    let ids = [
        MessageId::Ulong(0),
        MessageId::Ulong(u64::MAX),
        MessageId::Uuid(Uuid::from(values::UUID)),
        MessageId::Binary(Binary::from(b"\x00binary".to_vec())),
        MessageId::String(String::new()),
        MessageId::String("string".to_string()),
    ];
    for id in ids {
        let sent = Properties::builder().message_id(id.clone()).correlation_id(id).build();
        let received = client.round_trip(AnyMessage { properties: Some(sent.clone()), ..text("b") }).await?;
        expect("properties", Some(sent), received.properties)?;
    }
    Ok(client)
}

pub async fn header(mut client: Client) -> Checked<Client> {
    const TTL_MS: u32 = 600_000;
    let sent = Header { durable: true, priority: Priority(9), ttl: Some(TTL_MS), ..Default::default() };
    let received = client.round_trip(AnyMessage { header: Some(sent), ..text("b") }).await?;
    let received = received.header.unwrap_or_default();
    expect("durable, priority", (true, 9), (received.durable, received.priority.0))?;
    expect("0 < ttl <= 600,000 ms", true, received.ttl.is_some_and(|ttl| ttl > 0 && ttl <= TTL_MS))?;
    let sent = Header { durable: false, priority: Priority(0), ..Default::default() };
    let received = client.round_trip(AnyMessage { header: Some(sent), ..text("b") }).await?;
    let received = received.header.unwrap_or_default();
    let got = (received.durable, received.priority.0, received.ttl);
    expect("durable, priority, ttl", (false, 0, None), got)?;
    Ok(client)
}
