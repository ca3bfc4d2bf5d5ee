//! The checks of settling, credit, links and connections.

use std::time::Duration;

use fe2o3_amqp::Receiver;
use fe2o3_amqp::link::delivery::Sendable;
use fe2o3_amqp::link::receiver::TerminalDeliveryState;
use fe2o3_amqp::sasl_profile::{SaslProfile, SaslScramSha256, SaslScramSha512};
use fe2o3_amqp_types::definitions::{self, AmqpError, ReceiverSettleMode, SenderSettleMode};
use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::{
    Accepted, Body, Data, DistributionMode, Header, MessageAnnotations, Modified, Outcome, Priority, Rejected,
    Released, Source,
};

use serde_amqp::Value;
use serde_amqp::extensions::TransparentVec;
use serde_amqp::primitives::{Binary, OrderedMap, Symbol};
use tokio::time::timeout;

use crate::client::{
    AnyDelivery, AnyMessage, Checked, Client, accept, accept_bodies, body_of, close, credentials, expect, open,
    receive, step, string, strings, text, texts, value, with_body,
};

const LARGE_BODY_BYTES: usize = 8 * 1024 * 1024;
const ORDERED_MESSAGES: i32 = 1_000;
const COMPETING_MESSAGES: i32 = 200;
const QUIET: Duration = Duration::from_millis(300);

/// Octets of a linear congruence: no two parts of the body are alike, so that a misplaced part is seen.
fn large_octets() -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..LARGE_BODY_BYTES).map(|_| next()).collect()
}

pub async fn large_message(mut client: Client) -> Checked<Client> {
    let sent = Body::Data(TransparentVec::new(vec![Data(Binary::from(large_octets()))]));
    let received = client.round_trip(with_body(sent.clone())).await?;
    expect("same octets", true, sent == received.body)?;
    Ok(client)
}

pub async fn send_unsettled(mut client: Client) -> Checked<Client> {
    client.send(texts(&["unsettled"])).await?;
    expect("body", string("unsettled"), body_of(&client.next().await?))?;
    Ok(client)
}

pub async fn send_settled(mut client: Client) -> Checked<Client> {
    let bodies = ["0", "1", "2", "3"];
    client.send_settled(texts(&bodies)).await?;
    let mut receiver = client.receiver(4).await?;
    expect("bodies", strings(&bodies), accept_bodies(&mut receiver, 4).await?)?;
    Ok(client)
}

pub async fn send_mixed(mut client: Client) -> Checked<Client> {
    let mut sender = client.sender(SenderSettleMode::Mixed, ReceiverSettleMode::First).await?;
    for n in 0..10 {
        let sendable = Sendable::builder().message(value(Value::Int(n))).settled(n % 2 == 0).build();
        step("send", sender.send(sendable)).await?;
    }
    let mut receiver = client.receiver(10).await?;
    let expected: Vec<Value> = (0..10).map(Value::Int).collect();
    expect("bodies", expected, accept_bodies(&mut receiver, 10).await?)?;
    Ok(client)
}

pub async fn receive_settled(mut client: Client) -> Checked<Client> {
    client.send(texts(&["first", "second"])).await?;
    let source = Source::builder().address(client.queue()).build();
    let modes = (SenderSettleMode::Settled, ReceiverSettleMode::First);
    let mut receiver = client.receiver_of(source, 1, modes.0, modes.1).await?;
    expect("body", string("first"), body_of(&receive(&mut receiver).await?))?;
    close(receiver).await?;
    expect("next", string("second"), body_of(&client.next().await?))?;
    Ok(client)
}

/// Gives "first" an outcome, closes the link, and returns what the queue delivers first afterwards.
async fn next_after(client: &mut Client, outcome: TerminalDeliveryState) -> Checked<AnyDelivery> {
    let annotations = [("x-opt-kept", "kept"), ("x-opt-old", "old")];
    let annotations = annotations.map(|(key, kept)| (OwnedKey::Symbol(Symbol::from(key)), string(kept)));
    let annotations = MessageAnnotations(OrderedMap::from_iter(annotations));
    let first = AnyMessage { message_annotations: Some(annotations), ..text("first") };
    client.send(vec![first, text("second")]).await?;
    let mut receiver = client.receiver(1).await?;
    let delivery = receive(&mut receiver).await?;
    expect("body", string("first"), body_of(&delivery))?;
    expect("delivery-count on first delivery", 0, header_of(&delivery).delivery_count)?;
    step("outcome", receiver.dispose(&delivery, outcome)).await?;
    close(receiver).await?;
    client.next().await
}

pub fn header_of(delivery: &AnyDelivery) -> Header {
    delivery.message().header.clone().unwrap_or_default()
}

pub async fn accepted(mut client: Client) -> Checked<Client> {
    let next = next_after(&mut client, TerminalDeliveryState::Accepted(Accepted {})).await?;
    expect("next", string("second"), body_of(&next))?;
    Ok(client)
}

pub async fn rejected(mut client: Client) -> Checked<Client> {
    let error = definitions::Error::new(AmqpError::InternalError, "rejected by the check".to_string(), None);
    let outcome = TerminalDeliveryState::Rejected(Rejected { error: Some(error) });
    expect("next", string("second"), body_of(&next_after(&mut client, outcome).await?))?;
    Ok(client)
}

/// Checks the header that the message has when it comes to another link.
async fn redelivered(client: &mut Client, count: u32, outcome: TerminalDeliveryState) -> Checked<AnyDelivery> {
    let again = next_after(client, outcome).await?;
    let header = header_of(&again);
    expect("body", string("first"), body_of(&again))?;
    expect("delivery-count, first-acquirer", (count, false), (header.delivery_count, header.first_acquirer))?;
    Ok(again)
}

pub fn modified(failed: bool, undeliverable_here: bool) -> Modified {
    Modified {
        delivery_failed: Some(failed),
        undeliverable_here: Some(undeliverable_here),
        message_annotations: None,
    }
}

pub async fn released(mut client: Client) -> Checked<Client> {
    redelivered(&mut client, 0, TerminalDeliveryState::Released(Released {})).await?;
    Ok(client)
}

pub async fn modified_failed(mut client: Client) -> Checked<Client> {
    redelivered(&mut client, 1, TerminalDeliveryState::Modified(modified(true, false))).await?;
    Ok(client)
}

pub async fn modified_plain(mut client: Client) -> Checked<Client> {
    redelivered(&mut client, 0, TerminalDeliveryState::Modified(modified(false, false))).await?;
    Ok(client)
}

pub async fn modified_annotations(mut client: Client) -> Checked<Client> {
    let changes = [("x-opt-new", Value::Ulong(7)), ("x-opt-old", string("replaced"))];
    let changes = OrderedMap::from_iter(changes.map(|(key, new)| (Symbol::from(key), new)));
    let outcome = Modified { message_annotations: Some(changes), ..modified(true, false) };
    let again = redelivered(&mut client, 1, TerminalDeliveryState::Modified(outcome)).await?;
    let annotations = again.into_message().message_annotations.unwrap_or_default();
    for (key, kept) in [("x-opt-kept", string("kept")), ("x-opt-new", Value::Ulong(7)), ("x-opt-old", string("replaced"))] {
        expect(key, Some(&kept), annotations.0.get(&OwnedKey::Symbol(Symbol::from(key))))?;
    }
    Ok(client)
}

pub async fn undeliverable_here(mut client: Client) -> Checked<Client> {
    client.send(texts(&["first"])).await?;
    let mut here = client.receiver(1).await?;
    let delivery = receive(&mut here).await?;
    expect("body", string("first"), body_of(&delivery))?;
    step("modify", here.modify(&delivery, modified(false, true))).await?;
    client.send(texts(&["second"])).await?;
    step("credit", here.set_credit(1)).await?;
    expect("next at this link", string("second"), body_of(&accept(&mut here).await?))?;
    expect("at another link", string("first"), body_of(&client.next().await?))?;
    Ok(client)
}

pub async fn receive_second(mut client: Client) -> Checked<Client> {
    client.send(texts(&["first", "second"])).await?;
    let source = Source::builder().address(client.queue()).build();
    let modes = (SenderSettleMode::Unsettled, ReceiverSettleMode::Second);
    let mut receiver = client.receiver_of(source, 1, modes.0, modes.1).await?;
    expect("body", string("first"), body_of(&accept(&mut receiver).await?))?;
    close(receiver).await?;
    expect("next", string("second"), body_of(&client.next().await?))?;
    Ok(client)
}

pub async fn send_second(mut client: Client) -> Checked<Client> {
    let mut sender = client.sender(SenderSettleMode::Unsettled, ReceiverSettleMode::Second).await?;
    let outcome = step("send", sender.send(Sendable::builder().message(text("second mode")).build())).await?;
    expect("outcome is accepted", true, matches!(outcome, Outcome::Accepted(_)))?;
    step("close the sender", sender.close()).await?;
    expect("body", string("second mode"), body_of(&client.next().await?))?;
    Ok(client)
}

/// The library does not tell of the answer to a drain, so the check sees that the other 7 credits are gone.
pub async fn drain(mut client: Client) -> Checked<Client> {
    client.send(texts(&["0", "1", "2"])).await?;
    let mut receiver = client.receiver(10).await?;
    step("drain", receiver.drain()).await?;
    expect("bodies", strings(&["0", "1", "2"]), accept_bodies(&mut receiver, 3).await?)?;
    client.send(texts(&["later"])).await?;
    let early = timeout(QUIET, receiver.recv::<Body<Value>>()).await;
    expect("nothing comes without credit", true, early.is_err())?;
    step("credit", receiver.set_credit(1)).await?;
    expect("after the drain", string("later"), body_of(&accept(&mut receiver).await?))?;
    Ok(client)
}

pub async fn reconnect(mut client: Client) -> Checked<Client> {
    let header = Header { durable: true, priority: Priority(4), ..Default::default() };
    let durable = |body| AnyMessage { header: Some(header.clone()), ..text(body) };
    client.send(vec![durable("first"), durable("second")]).await?;
    let mut receiver = client.receiver(1).await?;
    expect("body", string("first"), body_of(&receive(&mut receiver).await?))?;
    drop(receiver);
    let mut client = client.reconnect().await?;
    let mut receiver = client.receiver(2).await?;
    expect("after reconnect", strings(&["first", "second"]), accept_bodies(&mut receiver, 2).await?)?;
    Ok(client)
}

pub async fn browse(mut client: Client) -> Checked<Client> {
    let bodies = ["0", "1", "2"];
    client.send(texts(&bodies)).await?;
    let source = Source::builder().address(client.queue()).distribution_mode(DistributionMode::Copy).build();
    let modes = (SenderSettleMode::Settled, ReceiverSettleMode::First);
    let mut browser = client.receiver_of(source, 3, modes.0, modes.1).await?;
    for body in bodies {
        expect("browsed", string(body), body_of(&receive(&mut browser).await?))?;
    }
    close(browser).await?;
    let mut receiver = client.receiver(3).await?;
    expect("consumed", strings(&bodies), accept_bodies(&mut receiver, 3).await?)?;
    Ok(client)
}

fn numbers(count: i32) -> Vec<AnyMessage> {
    (0..count).map(|n| value(Value::Int(n))).collect()
}

pub async fn order(mut client: Client) -> Checked<Client> {
    client.send(numbers(ORDERED_MESSAGES)).await?;
    let mut receiver = client.receiver(ORDERED_MESSAGES as u32).await?;
    let expected: Vec<Value> = (0..ORDERED_MESSAGES).map(Value::Int).collect();
    expect("order", expected, accept_bodies(&mut receiver, ORDERED_MESSAGES as usize).await?)?;
    Ok(client)
}

/// Takes one message after another until none has come for a while.
async fn consume(receiver: &mut Receiver) -> Checked<Vec<Value>> {
    let mut bodies = Vec::new();
    while let Ok(delivery) = timeout(QUIET, receiver.recv::<Body<Value>>()).await {
        let delivery = delivery.map_err(|error| format!("receive: expected no error, got {error:?}"))?;
        step("accept", receiver.accept(&delivery)).await?;
        bodies.push(body_of(&delivery));
        step("credit", receiver.set_credit(1)).await?;
    }
    Ok(bodies)
}

pub async fn competing(mut client: Client) -> Checked<Client> {
    let mut one = client.receiver(1).await?;
    let mut two = client.receiver(1).await?;
    client.send(numbers(COMPETING_MESSAGES)).await?;
    let (one, two) = tokio::join!(consume(&mut one), consume(&mut two));
    let (one, two) = (one?, two?);
    let both = (!one.is_empty(), !two.is_empty());
    let mut all = [one, two].concat();
    all.sort();
    let expected: Vec<Value> = (0..COMPETING_MESSAGES).map(Value::Int).collect();
    expect("union", expected, all)?;
    expect("both took part", (true, true), both)?;
    Ok(client)
}

pub async fn scram(url: &str) -> Checked<()> {
    let (user, password) = credentials().unwrap_or_default();
    let profiles = [
        SaslProfile::ScramSha256(SaslScramSha256::new(&user, &password)),
        SaslProfile::ScramSha512(SaslScramSha512::new(&user, &password)),
    ];
    for profile in profiles {
        let (mut connection, _session) = open(url, profile).await?;
        step("close", connection.close()).await?;
    }
    let wrong = SaslProfile::ScramSha256(SaslScramSha256::new(&user, format!("not {password}")));
    expect("a wrong password is refused", true, open(url, wrong).await.is_err())
}
