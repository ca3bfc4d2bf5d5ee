//! The checks of transactions that fail: bounds, ids that nobody knows, and what the coordinator says then.

use std::fmt::Debug;

use fe2o3_amqp::link::{DispositionError, FlowError, LinkStateError};
use fe2o3_amqp::transaction::{
    ControllerSendError, Transaction, TransactionAcquisition, TransactionBase, TransactionDischarge, TransactionPosting,
    TransactionRetirement,
};
use fe2o3_amqp_types::definitions::{AmqpError, ErrorCondition, ReceiverSettleMode};
use fe2o3_amqp_types::messaging::{Body, Outcome};
use fe2o3_amqp_types::transaction::{TransactionError, TransactionId};
use serde_amqp::Value;
use serde_amqp::primitives::Binary;

use crate::client::{Checked, Client, body_of, close, expect, receive, step, string, texts, value};
use crate::transactions::{
    close_controller, controller, controller_of, declare, discharge, nothing_there, owned, post, receiver_in_mode,
    sendable, unsettled_sender,
};

/// What a transaction may do.
fn operations() -> i32 {
    std::env::var("AMQP_TXN_OPERATIONS").ok().and_then(|number| number.parse().ok()).unwrap_or(10_000)
}

/// How many transactions a connection may have at a time.
const LIVE: usize = 64;

const LIMIT: ErrorCondition = ErrorCondition::AmqpError(AmqpError::ResourceLimitExceeded);
const ROLLBACK: ErrorCondition = ErrorCondition::TransactionError(TransactionError::Rollback);
const UNKNOWN_ID: ErrorCondition = ErrorCondition::TransactionError(TransactionError::UnknownId);

/// How the coordinator told that it cannot do what it was asked, and the condition.
#[derive(Debug, PartialEq)]
enum Refusal {
    Rejected(ErrorCondition),
    Detached(ErrorCondition),
    Other(String),
}

fn refusal<T: Debug>(answer: Result<T, ControllerSendError>) -> Refusal {
    match answer {
        Err(ControllerSendError::Rejected(rejected)) => match rejected.error {
            Some(error) => Refusal::Rejected(error.condition),
            None => Refusal::Other("rejected without an error".to_string()),
        },
        Err(ControllerSendError::LinkStateError(LinkStateError::RemoteClosedWithError(error))) => {
            Refusal::Detached(error.condition)
        }
        other => Refusal::Other(format!("{other:?}")),
    }
}

/// Posts without waiting for each answer, and returns how many were rejected and how many accepted.
async fn post_many(client: &mut Client, transaction: &Transaction<'_>, count: i32) -> Checked<(i32, i32)> {
    let mut sender = unsettled_sender(client).await?;
    let mut outcomes = Vec::new();
    for n in 0..count {
        let sendable = sendable(value(Value::Int(n)));
        outcomes.push(step("post", transaction.post_batchable(&mut sender, sendable)).await?);
    }
    let (mut rejected, mut accepted) = (0, 0);
    for outcome in outcomes {
        match step("outcome", outcome).await? {
            Outcome::Accepted(_) => accepted += 1,
            Outcome::Rejected(_) => rejected += 1,
            other => return Err(format!("outcome of a post: expected accepted or rejected, got {other:?}")),
        }
    }
    Ok((rejected, accepted))
}

/// One post too many. How many are rejected with it is the broker's choice: the transaction can only roll back now.
async fn expect_bound(client: &mut Client, transaction: &Transaction<'_>) -> Checked<()> {
    let (rejected, accepted) = post_many(client, transaction, operations() + 1).await?;
    expect("all were answered", operations() + 1, rejected + accepted)?;
    expect(&format!("some of them, not all, were rejected: {rejected}"), true, 0 < rejected && 0 < accepted)
}

/// `offering`: whether the control link's source offers rejected; if it names others only, the link is detached
/// (part 4.3).
async fn too_many(mut client: Client, offering: bool) -> Checked<Client> {
    let controller = if offering {
        controller(&mut client).await?
    } else {
        controller_of(&mut client, "amqp:accepted:list").await?
    };
    let mut transaction = declare(&controller).await?;
    expect_bound(&mut client, &transaction).await?;
    let answer = refusal(transaction.discharge(false).await);
    let expected = if offering { Refusal::Rejected(ROLLBACK) } else { Refusal::Detached(ROLLBACK) };
    expect("commit", expected, answer)?;
    std::mem::forget(transaction);
    nothing_there(&mut client, "after the commit that failed").await?;
    if offering {
        let transaction = declare(&controller).await?;
        expect("rejected, accepted in the next", (0, 1), post_many(&mut client, &transaction, 1).await?)?;
        discharge(transaction, false).await?;
        expect("of the next", Value::Int(0), body_of(&client.next().await?))?;
        close_controller(controller).await?;
    }
    Ok(client)
}

pub async fn too_many_rejected(client: Client) -> Checked<Client> {
    too_many(client, true).await
}

pub async fn too_many_detached(client: Client) -> Checked<Client> {
    too_many(client, false).await
}

pub async fn rolled_back_after_bound(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    let transaction = declare(&controller).await?;
    expect_bound(&mut client, &transaction).await?;
    discharge(transaction, true).await?;
    nothing_there(&mut client, "after the rollback").await?;
    close_controller(controller).await?;
    Ok(client)
}

pub async fn too_many_live(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    let mut live = Vec::new();
    for _ in 0..LIVE {
        live.push(declare(&controller).await?);
    }
    let answer = refusal(Transaction::declare(&controller, None).await);
    expect("declare of one more", Refusal::Rejected(LIMIT), answer)?;
    for transaction in live {
        discharge(transaction, false).await?;
    }
    discharge(declare(&controller).await?, false).await?;
    close_controller(controller).await?;
    Ok(client)
}

/// The broker rolls back what is older than its limit, by itself; the next use is told (part 4.5.8).
pub async fn older(mut client: Client) -> Checked<Client> {
    const TIMEOUT: ErrorCondition = ErrorCondition::TransactionError(TransactionError::Timeout);
    let controller = controller(&mut client).await?;
    client.send(texts(&["kept"])).await?;
    let mut receiver = client.receiver(1).await?;
    let delivery = receive(&mut receiver).await?;
    let mut sender = unsettled_sender(&mut client).await?;
    let mut transaction = declare(&controller).await?;
    post(&transaction, &mut sender, texts(&["never"])).await?;
    step("accept", transaction.accept(&mut receiver, &delivery)).await?;
    expect("comes again by itself", string("kept"), body_of(&client.next().await?))?;
    nothing_there(&mut client, "after the limit").await?;
    expect("commit", Refusal::Rejected(TIMEOUT), refusal(transaction.discharge(false).await))?;
    std::mem::forget(transaction);
    discharge(declare(&controller).await?, false).await?;
    close_controller(controller).await?;
    Ok(client)
}

/// Distributed transactions are a capability that is not offered (part 4.5.2).
pub async fn global_id(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    let global_id = Binary::from(b"a transaction of several resources".to_vec());
    let answer = refusal(Transaction::declare(&controller, global_id).await);
    expect(&format!("rejected: {answer:?}"), true, matches!(answer, Refusal::Rejected(_)))?;
    discharge(declare(&controller).await?, false).await?;
    close_controller(controller).await?;
    Ok(client)
}

/// A transaction that was never declared: the library asks of one no more than these traits.
struct Forged(TransactionId);

impl TransactionBase for Forged {
    fn txn_id(&self) -> &TransactionId {
        &self.0
    }
}

impl TransactionDischarge for Forged {
    type Error = FlowError;

    fn is_discharged(&self) -> bool {
        true
    }

    async fn discharge(&mut self, _fail: bool) -> Result<(), FlowError> {
        Ok(())
    }
}

impl TransactionRetirement for Forged {
    type RetireError = DispositionError;
}

impl TransactionPosting for Forged {}

impl TransactionAcquisition for Forged {}

fn expect_unknown<T>(what: &str, answer: Result<T, impl Debug>) -> Checked<()> {
    match answer {
        Ok(_) => Err(format!("{what}: expected {UNKNOWN_ID:?}, got no error")),
        Err(error) => {
            let error = format!("{error:?}");
            expect(&format!("{what}: {error}"), true, error.contains("UnknownId"))
        }
    }
}

/// Work with an id that is not known ends the link that carried it, and nothing of it is done.
async fn unknown(mut client: Client, id: TransactionId) -> Checked<Client> {
    let forged = Forged(id);
    let mut sender = unsettled_sender(&mut client).await?;
    expect_unknown("post", forged.post(&mut sender, sendable(value(Value::Int(0)))).await)?;
    nothing_there(&mut client, "after the post").await?;

    for mode in [ReceiverSettleMode::First, ReceiverSettleMode::Second] {
        client.send(texts(&["kept"])).await?;
        let mut receiver = receiver_in_mode(&mut client, mode, 1).await?;
        let delivery = receive(&mut receiver).await?;
        step("accept", forged.accept(&mut receiver, &delivery)).await?;
        expect_unknown("accept", receiver.recv::<Body<Value>>().await)?;
        expect("comes again", string("kept"), body_of(&client.next().await?))?;
        nothing_there(&mut client, "after the accept").await?;
    }

    client.send(texts(&["kept"])).await?;
    let mut receiver = client.receiver(0).await?;
    let mut acquisition = step("acquire", forged.acquire(&mut receiver, 1)).await?;
    expect_unknown("acquire", acquisition.recv::<Body<Value>>().await)?;
    drop(acquisition);
    expect("comes again", string("kept"), body_of(&client.next().await?))?;
    nothing_there(&mut client, "after the acquisition").await?;
    Ok(client)
}

pub async fn unknown_id(client: Client) -> Checked<Client> {
    unknown(client, Binary::from(b"never declared".to_vec())).await
}

pub async fn empty_id(client: Client) -> Checked<Client> {
    unknown(client, Binary::from(Vec::new())).await
}

pub async fn discharged_id(mut client: Client) -> Checked<Client> {
    let transaction = owned(&mut client).await?;
    let id = transaction.txn_id().clone();
    discharge(transaction, false).await?;
    unknown(client, id).await
}

pub async fn foreign_id(client: Client) -> Checked<Client> {
    let mut other = client.another().await?;
    let transaction = owned(&mut other).await?;
    let mut sender = unsettled_sender(&mut other).await?;
    let mut client = unknown(client, transaction.txn_id().clone()).await?;
    post(&transaction, &mut sender, texts(&["its own"])).await?;
    discharge(transaction, false).await?;
    expect("the other's is untouched", string("its own"), body_of(&client.next().await?))?;
    other.close().await?;
    Ok(client)
}

/// An outcome in one live transaction for a delivery that belongs to another: the control link ends (part 4.4.2).
pub async fn two_transactions(mut client: Client) -> Checked<Client> {
    let first = controller(&mut client).await?;
    let second = controller(&mut client).await?;
    client.send(texts(&["kept"])).await?;
    let mut receiver = receiver_in_mode(&mut client, ReceiverSettleMode::Second, 1).await?;
    let delivery = receive(&mut receiver).await?;
    let mut of_first = declare(&first).await?;
    let mut of_second = declare(&second).await?;
    step("accept", of_first.accept(&mut receiver, &delivery)).await?;
    step("accept", of_second.accept(&mut receiver, &delivery)).await?;
    let first_answer = of_first.discharge(false).await;
    let committed = first_answer.is_ok();
    let answers = [refusal(first_answer), refusal(of_second.discharge(false).await)];
    let terminated = answers.contains(&Refusal::Detached(ROLLBACK));
    expect(&format!("a control link is terminated: {answers:?}"), true, terminated)?;
    std::mem::forget((of_first, of_second));
    close(receiver).await?;
    if !committed {
        expect("comes again", string("kept"), body_of(&client.next().await?))?;
    }
    nothing_there(&mut client, "after both").await?;
    Ok(client)
}
