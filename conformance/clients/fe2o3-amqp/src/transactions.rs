//! What the checks of transactions share, and the checks of posting, retirement, sessions and controllers.

use std::fmt::Debug;

use fe2o3_amqp::link::FlowError;
use fe2o3_amqp::link::delivery::Sendable;
use fe2o3_amqp::transaction::{
    Controller, OwnedTransaction, Transaction, TransactionDischarge, TransactionExt, TransactionPosting,
    TransactionRetirement,
};
use fe2o3_amqp::{Receiver, Sender};
use fe2o3_amqp_types::definitions::{self, AmqpError, ReceiverSettleMode, SenderSettleMode};
use fe2o3_amqp_types::messaging::annotations::OwnedKey;
use fe2o3_amqp_types::messaging::{
    Accepted, Body, Data, MessageAnnotations, Modified, Outcome, Rejected, Released, Source,
};
use fe2o3_amqp_types::transaction::Coordinator;
use serde_amqp::Value;
use serde_amqp::extensions::TransparentVec;
use serde_amqp::primitives::{Array, Binary, OrderedMap, Symbol};

use crate::behaviour::{header_of, modified};
use crate::client::{
    AnyDelivery, AnyMessage, Checked, Client, accept, accept_bodies, body_of, close, expect, receive, step, string,
    strings, text, texts, value, with_body,
};

const LARGE_BODY_BYTES: usize = 1 << 20;
const PIPELINED: i32 = 1_000;
const LIVE: usize = 20;

/// The library's two kinds of transaction, with errors that can be shown.
pub trait Txn:
    TransactionExt
    + TransactionDischarge<Error: Debug + From<FlowError>>
    + TransactionRetirement<RetireError: Debug>
    + Send
    + Sync
{
}

impl<T> Txn for T where
    T: TransactionExt
        + TransactionDischarge<Error: Debug + From<FlowError>>
        + TransactionRetirement<RetireError: Debug>
        + Send
        + Sync
{
}

/// A control link whose source offers rejected, so that a failed request is answered with it (part 4.2, 4.3).
pub async fn controller(client: &mut Client) -> Checked<Controller> {
    controller_of(client, "amqp:rejected:list").await
}

/// A control link whose source offers this outcome alone.
pub async fn controller_of(client: &mut Client, outcome: &str) -> Checked<Controller> {
    let outcomes = Array::from(vec![Symbol::from(outcome)]);
    let builder = Controller::builder().name(client.link_name()).source(Source::builder().outcomes(outcomes).build());
    let builder = builder.coordinator(Coordinator::default()).sender_settle_mode(SenderSettleMode::Unsettled);
    step("attach a control link", builder.attach(client.session())).await
}

pub async fn close_controller(controller: Controller) -> Checked<()> {
    step("close the control link", controller.close()).await
}

pub async fn declare(controller: &Controller) -> Checked<Transaction<'_>> {
    step("declare", Transaction::declare(controller, None)).await
}

/// A transaction with a control link of its own.
pub async fn owned(client: &mut Client) -> Checked<OwnedTransaction> {
    let name = client.link_name();
    step("declare", OwnedTransaction::declare(client.session(), name, None)).await
}

pub async fn discharge(transaction: impl Txn, fail: bool) -> Checked<()> {
    if fail { step("rollback", transaction.rollback()).await } else { step("commit", transaction.commit()).await }
}

pub async fn unsettled_sender(client: &mut Client) -> Checked<Sender> {
    client.sender(SenderSettleMode::Unsettled, ReceiverSettleMode::First).await
}

pub fn sendable(message: AnyMessage) -> Sendable<Body<Value>> {
    Sendable::builder().message(message).build()
}

/// Posts unsettled and waits for what the broker says before the discharge: accepted (part 4.4.1).
pub async fn post(transaction: &impl Txn, sender: &mut Sender, messages: Vec<AnyMessage>) -> Checked<()> {
    for message in messages {
        let outcome = step("post", transaction.post(sender, sendable(message))).await?;
        expect("outcome of a post is accepted", true, matches!(outcome, Outcome::Accepted(_)))?;
    }
    Ok(())
}

/// Sends one more message and sees that it is all that another link is offered. The library does not tell of the
/// answer to a drain, and what is wrongly there lies before the new message.
pub async fn nothing_there(client: &mut Client, when: &str) -> Checked<()> {
    client.send(vec![text("fence")]).await?;
    expect(when, string("fence"), body_of(&client.next().await?))
}

/// A link to the check's queue that settles as `mode` says: first settles with the outcome, second after the broker.
pub async fn receiver_in_mode(client: &mut Client, mode: ReceiverSettleMode, credit: u32) -> Checked<Receiver> {
    let source = Source::builder().address(client.queue()).build();
    client.receiver_of(source, credit, SenderSettleMode::Unsettled, mode).await
}

async fn next_is(client: &mut Client, body: &str, delivery_count: u32) -> Checked<AnyDelivery> {
    let next = client.next().await?;
    let got = (body_of(&next), header_of(&next).delivery_count);
    expect("next, delivery-count", (string(body), delivery_count), got)?;
    Ok(next)
}

// --- posting

async fn posting(client: &mut Client, transaction: impl Txn, fail: bool) -> Checked<()> {
    let mut sender = unsettled_sender(client).await?;
    post(&transaction, &mut sender, texts(&["1", "2", "3"])).await?;
    nothing_there(client, "before the discharge").await?;
    discharge(transaction, fail).await?;
    if !fail {
        let mut receiver = client.receiver(3).await?;
        expect("after the commit", strings(&["1", "2", "3"]), accept_bodies(&mut receiver, 3).await?)?;
        close(receiver).await?;
    }
    nothing_there(client, "after the discharge").await
}

pub async fn posting_scoped(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    for fail in [true, false] {
        let transaction = declare(&controller).await?;
        posting(&mut client, transaction, fail).await?;
    }
    close_controller(controller).await?;
    Ok(client)
}

pub async fn posting_owned(mut client: Client) -> Checked<Client> {
    for fail in [true, false] {
        let transaction = owned(&mut client).await?;
        posting(&mut client, transaction, fail).await?;
    }
    Ok(client)
}

pub async fn posting_settled(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    for mode in [SenderSettleMode::Settled, SenderSettleMode::Mixed] {
        for fail in [true, false] {
            let mut sender = client.sender(mode.clone(), ReceiverSettleMode::First).await?;
            let transaction = declare(&controller).await?;
            for body in ["1", "2"] {
                let sendable = Sendable::builder().message(text(body)).settled(true).build();
                step("post", transaction.post(&mut sender, sendable)).await?;
            }
            nothing_there(&mut client, "before the discharge").await?;
            discharge(transaction, fail).await?;
            if !fail {
                let mut receiver = client.receiver(2).await?;
                expect("after the commit", strings(&["1", "2"]), accept_bodies(&mut receiver, 2).await?)?;
                close(receiver).await?;
            }
            nothing_there(&mut client, "after the discharge").await?;
        }
    }
    close_controller(controller).await?;
    Ok(client)
}

pub async fn posting_pipelined(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    let transaction = declare(&controller).await?;
    let mut sender = unsettled_sender(&mut client).await?;
    let mut outcomes = Vec::new();
    for n in 0..PIPELINED {
        let sendable = sendable(value(Value::Int(n)));
        outcomes.push(step("post", transaction.post_batchable(&mut sender, sendable)).await?);
    }
    for outcome in outcomes {
        let outcome = step("outcome", outcome).await?;
        expect("outcome of a post is accepted", true, matches!(outcome, Outcome::Accepted(_)))?;
    }
    discharge(transaction, false).await?;
    let mut receiver = client.receiver(PIPELINED as u32).await?;
    let expected: Vec<Value> = (0..PIPELINED).map(Value::Int).collect();
    expect("order", expected, accept_bodies(&mut receiver, PIPELINED as usize).await?)?;
    close_controller(controller).await?;
    Ok(client)
}

pub async fn posting_large(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    let mut sender = unsettled_sender(&mut client).await?;
    let body = |octet| Body::Data(TransparentVec::new(vec![Data(Binary::from(vec![octet; LARGE_BODY_BYTES]))]));
    for (fail, octet) in [(true, b'r'), (false, b'c')] {
        let transaction = declare(&controller).await?;
        post(&transaction, &mut sender, vec![with_body(body(octet))]).await?;
        discharge(transaction, fail).await?;
    }
    let received = client.next().await?;
    expect("same octets", true, body(b'c') == received.into_body())?;
    nothing_there(&mut client, "after it").await?;
    close_controller(controller).await?;
    Ok(client)
}

pub async fn posting_mixed(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    let mut sender = unsettled_sender(&mut client).await?;
    let transaction = declare(&controller).await?;
    post(&transaction, &mut sender, texts(&["in it"])).await?;
    step("send", sender.send(sendable(text("beside it")))).await?;
    next_is(&mut client, "beside it", 0).await?;
    discharge(transaction, false).await?;
    next_is(&mut client, "in it", 0).await?;
    close_controller(controller).await?;
    Ok(client)
}

// --- retirement

fn accepted() -> Outcome {
    Outcome::Accepted(Accepted {})
}

fn all_outcomes() -> [(&'static str, Outcome); 4] {
    let error = definitions::Error::new(AmqpError::InternalError, "rejected by the check".to_string(), None);
    let changes = OrderedMap::from_iter([(Symbol::from("x-opt-old"), string("replaced"))]);
    let modified = Modified { message_annotations: Some(changes), ..modified(true, false) };
    [
        ("accepted", accepted()),
        ("rejected", Outcome::Rejected(Rejected { error: Some(error) })),
        ("released", Outcome::Released(Released {})),
        ("modified", Outcome::Modified(modified)),
    ]
}

fn annotated(body: &str) -> AnyMessage {
    let annotations = OrderedMap::from_iter([(OwnedKey::Symbol(Symbol::from("x-opt-old")), string("old"))]);
    AnyMessage { message_annotations: Some(MessageAnnotations(annotations)), ..text(body) }
}

fn annotation_of(delivery: AnyDelivery) -> Option<Value> {
    let annotations = delivery.into_message().message_annotations.unwrap_or_default();
    annotations.0.get(&OwnedKey::Symbol(Symbol::from("x-opt-old"))).cloned()
}

/// Retires "first" with each outcome in a transaction of its own and commits; nothing happens before the commit.
async fn retire_and_commit(mut client: Client, mode: ReceiverSettleMode) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    for (name, outcome) in all_outcomes() {
        client.send(vec![annotated(name)]).await?;
        let mut receiver = receiver_in_mode(&mut client, mode.clone(), 1).await?;
        let delivery = receive(&mut receiver).await?;
        let transaction = declare(&controller).await?;
        step("retire", transaction.retire(&mut receiver, &delivery, outcome)).await?;
        nothing_there(&mut client, "before the commit").await?;
        discharge(transaction, false).await?;
        match name {
            "released" => {
                next_is(&mut client, name, 0).await?;
            }
            "modified" => {
                let next = next_is(&mut client, name, 1).await?;
                expect("annotation", Some(string("replaced")), annotation_of(next))?;
            }
            _ => {}
        }
        nothing_there(&mut client, "after the commit").await?;
        close(receiver).await?;
    }
    close_controller(controller).await?;
    Ok(client)
}

pub async fn retire_settled(client: Client) -> Checked<Client> {
    retire_and_commit(client, ReceiverSettleMode::First).await
}

pub async fn retire_unsettled(client: Client) -> Checked<Client> {
    retire_and_commit(client, ReceiverSettleMode::Second).await
}

/// What was settled gets the default outcome of the source, whatever the outcome in the transaction was (4.4.4).
pub async fn rollback_settled(mut client: Client) -> Checked<Client> {
    let defaults = [
        (None, Some(0)),
        (Some(Outcome::Released(Released {})), Some(0)),
        (Some(Outcome::Modified(modified(true, false))), Some(1)),
        (Some(Outcome::Rejected(Rejected { error: None })), None),
        (Some(accepted()), None),
    ];
    for (default_outcome, delivery_count) in defaults {
        for (name, outcome) in all_outcomes() {
            client.send(vec![annotated(name)]).await?;
            let builder = Source::builder().address(client.queue());
            let source = match default_outcome.clone() {
                Some(default_outcome) => builder.default_outcome(default_outcome).build(),
                None => builder.build(),
            };
            let modes = (SenderSettleMode::Unsettled, ReceiverSettleMode::First);
            let mut receiver = client.receiver_of(source, 1, modes.0, modes.1).await?;
            let delivery = receive(&mut receiver).await?;
            let transaction = owned(&mut client).await?;
            step("retire", transaction.retire(&mut receiver, &delivery, outcome)).await?;
            nothing_there(&mut client, "before the rollback").await?;
            discharge(transaction, true).await?;
            if let Some(delivery_count) = delivery_count {
                let next = next_is(&mut client, name, delivery_count).await?;
                expect("annotation", Some(string("old")), annotation_of(next))?;
            }
            nothing_there(&mut client, "after the rollback").await?;
            close(receiver).await?;
        }
    }
    Ok(client)
}

/// What was not settled stays with the link, and can be retired again: in another transaction, or plainly.
pub async fn rollback_unsettled(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    for plainly in [true, false] {
        for (name, outcome) in all_outcomes() {
            client.send(vec![annotated(name)]).await?;
            let mut receiver = receiver_in_mode(&mut client, ReceiverSettleMode::Second, 1).await?;
            let delivery = receive(&mut receiver).await?;
            let transaction = declare(&controller).await?;
            step("retire", transaction.retire(&mut receiver, &delivery, outcome)).await?;
            discharge(transaction, true).await?;
            nothing_there(&mut client, "after the rollback").await?;
            if plainly {
                step("modify", receiver.modify(&delivery, modified(true, false))).await?;
            } else {
                let transaction = declare(&controller).await?;
                step("modify", transaction.modify(&mut receiver, &delivery, modified(true, false))).await?;
                discharge(transaction, false).await?;
            }
            let next = next_is(&mut client, name, 1).await?;
            expect("annotation", Some(string("old")), annotation_of(next))?;
            close(receiver).await?;
        }
    }
    close_controller(controller).await?;
    Ok(client)
}

pub async fn last_outcome_wins(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    client.send(texts(&["first", "second"])).await?;
    let mut receiver = receiver_in_mode(&mut client, ReceiverSettleMode::Second, 2).await?;
    let deliveries = [receive(&mut receiver).await?, receive(&mut receiver).await?];
    let transaction = declare(&controller).await?;
    step("accept", transaction.accept(&mut receiver, &deliveries[0])).await?;
    step("release", transaction.release(&mut receiver, &deliveries[1])).await?;
    step("release", transaction.release(&mut receiver, &deliveries[0])).await?;
    step("accept", transaction.accept(&mut receiver, &deliveries[1])).await?;
    discharge(transaction, false).await?;
    next_is(&mut client, "first", 0).await?;
    nothing_there(&mut client, "after the commit").await?;
    close_controller(controller).await?;
    Ok(client)
}

// --- ends of a transaction that are no discharge

pub async fn dropped(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    client.send(texts(&["kept"])).await?;
    let mut sender = unsettled_sender(&mut client).await?;
    let mut receiver = client.receiver(1).await?;
    let delivery = receive(&mut receiver).await?;
    let transaction = declare(&controller).await?;
    post(&transaction, &mut sender, texts(&["never"])).await?;
    step("accept", transaction.accept(&mut receiver, &delivery)).await?;
    drop(transaction);
    next_is(&mut client, "kept", 0).await?;
    nothing_there(&mut client, "after the drop").await?;
    let transaction = declare(&controller).await?;
    post(&transaction, &mut sender, texts(&["the next one"])).await?;
    discharge(transaction, false).await?;
    next_is(&mut client, "the next one", 0).await?;
    close_controller(controller).await?;
    Ok(client)
}

pub async fn owned_dropped(mut client: Client) -> Checked<Client> {
    client.send(texts(&["kept"])).await?;
    let mut sender = unsettled_sender(&mut client).await?;
    let mut receiver = client.receiver(1).await?;
    let delivery = receive(&mut receiver).await?;
    let transaction = owned(&mut client).await?;
    post(&transaction, &mut sender, texts(&["never"])).await?;
    step("accept", transaction.accept(&mut receiver, &delivery)).await?;
    drop(transaction);
    next_is(&mut client, "kept", 0).await?;
    nothing_there(&mut client, "after the drop").await?;
    Ok(client)
}

/// `forget` keeps the library from rolling back, so that the broker has to.
pub async fn controller_closed(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    client.send(texts(&["kept"])).await?;
    let mut sender = unsettled_sender(&mut client).await?;
    let mut receiver = client.receiver(1).await?;
    let delivery = receive(&mut receiver).await?;
    for number in 0..2 {
        let transaction = declare(&controller).await?;
        post(&transaction, &mut sender, texts(&["never"])).await?;
        if number == 0 {
            step("accept", transaction.accept(&mut receiver, &delivery)).await?;
        }
        std::mem::forget(transaction);
    }
    close_controller(controller).await?;
    next_is(&mut client, "kept", 0).await?;
    nothing_there(&mut client, "after the control link was closed").await?;
    Ok(client)
}

pub async fn session_ends(mut client: Client) -> Checked<Client> {
    let mut session = client.another_session().await?;
    let attached = Controller::attach(&mut session, "on the other session");
    let controller = step("attach a control link", attached).await?;
    client.send(texts(&["kept"])).await?;
    let mut sender = unsettled_sender(&mut client).await?;
    let mut receiver = client.receiver(1).await?;
    let delivery = receive(&mut receiver).await?;
    let transaction = declare(&controller).await?;
    post(&transaction, &mut sender, texts(&["never"])).await?;
    step("accept", transaction.accept(&mut receiver, &delivery)).await?;
    std::mem::forget(transaction);
    step("end the session of the control link", session.end()).await?;
    next_is(&mut client, "kept", 0).await?;
    nothing_there(&mut client, "after the session's end").await?;
    Ok(client)
}

pub async fn connection_ends(mut client: Client) -> Checked<Client> {
    let mut other = client.another().await?;
    client.send(texts(&["kept"])).await?;
    let mut sender = unsettled_sender(&mut other).await?;
    let mut receiver = receiver_in_mode(&mut other, ReceiverSettleMode::Second, 1).await?;
    let delivery = receive(&mut receiver).await?;
    let transaction = owned(&mut other).await?;
    post(&transaction, &mut sender, texts(&["never"])).await?;
    step("accept", transaction.accept(&mut receiver, &delivery)).await?;
    std::mem::forget(transaction);
    other.close().await?;
    next_is(&mut client, "kept", 0).await?;
    nothing_there(&mut client, "after the connection's end").await?;
    Ok(client)
}

// --- several sessions, controllers, transactions

/// The control link is on one session, the sending link on a second, the receiving link on a third.
pub async fn several_sessions(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    let mut sending = client.another_session().await?;
    let mut receiving = client.another_session().await?;
    let queue = client.queue().to_string();
    let target = format!("{queue}-out");
    let mut sender = step("attach", Sender::attach(&mut sending, "sender", target.clone())).await?;
    for fail in [true, false] {
        if fail {
            client.send(texts(&["moved"])).await?;
        }
        let builder = Receiver::builder().name(format!("receiver-{fail}")).source(queue.clone());
        let mut receiver = step("attach", builder.attach(&mut receiving)).await?;
        let transaction = declare(&controller).await?;
        let delivery = receive(&mut receiver).await?;
        post(&transaction, &mut sender, vec![value(body_of(&delivery))]).await?;
        step("accept", transaction.accept(&mut receiver, &delivery)).await?;
        // Without credit, the link does not get again at once what the rollback releases.
        step("credit", receiver.set_credit(0)).await?;
        discharge(transaction, fail).await?;
        close(receiver).await?;
    }
    nothing_there(&mut client, "in the first queue after the commit").await?;
    let mut receiver = step("attach", Receiver::attach(&mut receiving, "last", target)).await?;
    step("send", sender.send(sendable(text("fence")))).await?;
    let expected = strings(&["moved", "fence"]);
    expect("in the second queue", expected, accept_bodies(&mut receiver, 2).await?)?;
    close_controller(controller).await?;
    // The library takes the answer to an end for an error once it has sent its close: it must have come before.
    step("end the second session", sending.end()).await?;
    step("end the third session", receiving.end()).await?;
    Ok(client)
}

/// Two control links on two sessions: what ends with one leaves the transactions of the other alone.
pub async fn two_controllers(mut client: Client) -> Checked<Client> {
    let mut session = client.another_session().await?;
    let first = controller(&mut client).await?;
    let second = step("attach a control link", Controller::attach(&mut session, "second")).await?;
    let mut sender = unsettled_sender(&mut client).await?;
    let of_first = declare(&first).await?;
    let of_second = declare(&second).await?;
    post(&of_first, &mut sender, texts(&["of the first"])).await?;
    post(&of_second, &mut sender, texts(&["of the second"])).await?;
    std::mem::forget(of_second);
    close_controller(second).await?;
    discharge(of_first, false).await?;
    next_is(&mut client, "of the first", 0).await?;
    nothing_there(&mut client, "after the commit").await?;
    close_controller(first).await?;
    step("end the other session", session.end()).await?;
    Ok(client)
}

pub async fn several_live(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    let mut sender = unsettled_sender(&mut client).await?;
    let mut live = Vec::new();
    for _ in 0..LIVE {
        live.push(declare(&controller).await?);
    }
    for (number, transaction) in live.iter().enumerate() {
        post(transaction, &mut sender, vec![value(Value::Int(number as i32))]).await?;
    }
    let mut expected = Vec::new();
    for (number, transaction) in live.into_iter().enumerate().rev() {
        let fail = number % 3 == 0;
        discharge(transaction, fail).await?;
        if !fail {
            expected.push(Value::Int(number as i32));
        }
    }
    let mut receiver = client.receiver(LIVE as u32).await?;
    let got = accept_bodies(&mut receiver, expected.len()).await?;
    expect("in the order of the commits", expected, got)?;
    close(receiver).await?;
    nothing_there(&mut client, "after them").await?;
    close_controller(controller).await?;
    Ok(client)
}

/// Moves numbered messages to a second queue, with a rollback now and then; each is there once, in order.
pub async fn moved(mut client: Client) -> Checked<Client> {
    const MESSAGES: i32 = 200;
    client.send((0..MESSAGES).map(|n| value(Value::Int(n))).collect()).await?;
    let target = format!("{}-out", client.queue());
    let name = client.link_name();
    let mut sender = step("attach", Sender::attach(client.session(), name, target.clone())).await?;
    let controller = controller(&mut client).await?;
    let (mut left, mut round) = (MESSAGES, 0);
    while left > 0 {
        round += 1;
        let size = left.min(1 + round * 7 % 11);
        let mode = if round % 2 == 0 { ReceiverSettleMode::First } else { ReceiverSettleMode::Second };
        let mut receiver = receiver_in_mode(&mut client, mode, size as u32).await?;
        let transaction = declare(&controller).await?;
        for _ in 0..size {
            let delivery = receive(&mut receiver).await?;
            step("accept", transaction.accept(&mut receiver, &delivery)).await?;
            post(&transaction, &mut sender, vec![value(body_of(&delivery))]).await?;
        }
        let fail = round % 3 == 0;
        discharge(transaction, fail).await?;
        left -= if fail { 0 } else { size };
        close(receiver).await?;
    }
    nothing_there(&mut client, "in the first queue").await?;
    let name = client.link_name();
    let mut receiver = step("attach", Receiver::attach(client.session(), name, target)).await?;
    step("send", sender.send(sendable(text("fence")))).await?;
    let mut expected: Vec<Value> = (0..MESSAGES).map(Value::Int).collect();
    expected.push(string("fence"));
    let mut got = Vec::new();
    while got.len() < expected.len() {
        got.push(body_of(&accept(&mut receiver).await?));
    }
    expect("in the second queue, in order", expected, got)?;
    close_controller(controller).await?;
    Ok(client)
}
