//! The checks of transactional acquisition: the flow names the transaction that what it asks for belongs to (4.4.3).

use std::thread;

use fe2o3_amqp::Receiver;
use fe2o3_amqp::transaction::{
    TransactionAcquisition, TransactionDischarge, TransactionPosting, TxnAcquisition,
};
use fe2o3_amqp_types::definitions::{ReceiverSettleMode, SenderSettleMode};
use fe2o3_amqp_types::messaging::{Accepted, Body, DistributionMode, Outcome, Rejected, Released, Source};
use serde_amqp::Value;
use serde_amqp::primitives::Symbol;

use crate::behaviour::{header_of, modified};
use crate::client::{
    AnyDelivery, Checked, Client, accept, accept_bodies, body_of, close, expect, receive, step, string, strings, text,
    texts, value,
};
use crate::transactions::{
    Txn, close_controller, controller, declare, discharge, nothing_there, owned, receiver_in_mode, sendable,
};

pub async fn acquire<T: Txn>(transaction: T, receiver: &mut Receiver, credit: u32) -> Checked<TxnAcquisition<'_, T>>
where
    T: TransactionAcquisition,
{
    step("acquire", transaction.acquire(receiver, credit)).await
}

async fn receive_in<T: Txn>(acquisition: &mut TxnAcquisition<'_, T>) -> Checked<AnyDelivery> {
    step("receive in a transaction", acquisition.recv::<Body<Value>>()).await
}

/// Receives as many as there are bodies, in that order, and accepts them if asked to.
async fn acquire_all<T: Txn>(
    acquisition: &mut TxnAcquisition<'_, T>,
    bodies: &[&str],
    accepting: bool,
) -> Checked<Vec<AnyDelivery>> {
    let mut deliveries = Vec::new();
    for body in bodies {
        let delivery = receive_in(acquisition).await?;
        expect("acquired", string(body), body_of(&delivery))?;
        if accepting {
            step("accept", acquisition.accept(&delivery)).await?;
        }
        deliveries.push(delivery);
    }
    Ok(deliveries)
}

async fn end<T: Txn>(acquisition: TxnAcquisition<'_, T>, fail: bool) -> Checked<()> {
    if fail { step("rollback", acquisition.rollback()).await } else { step("commit", acquisition.commit()).await }
}

/// Takes what is in the queue and checks bodies and delivery-counts; then nothing more may be there.
async fn expect_left(client: &mut Client, bodies: &[&str]) -> Checked<()> {
    for body in bodies {
        let next = client.next().await?;
        let got = (body_of(&next), header_of(&next).delivery_count);
        expect("left in the queue, delivery-count", (string(body), 0), got)?;
    }
    nothing_there(client, "after them").await
}

async fn accepting<T: Txn>(client: &mut Client, transaction: T, mode: ReceiverSettleMode, fail: bool) -> Checked<()>
where
    T: TransactionAcquisition,
{
    client.send(texts(&["1", "2"])).await?;
    let mut receiver = receiver_in_mode(client, mode, 0).await?;
    let mut acquisition = acquire(transaction, &mut receiver, 2).await?;
    acquire_all(&mut acquisition, &["1", "2"], true).await?;
    nothing_there(client, "for another link before the discharge").await?;
    end(acquisition, fail).await?;
    expect_left(client, if fail { &["1", "2"] } else { &[] }).await?;
    close(receiver).await
}

pub async fn acquired(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    for mode in [ReceiverSettleMode::First, ReceiverSettleMode::Second] {
        for fail in [true, false] {
            let transaction = declare(&controller).await?;
            accepting(&mut client, transaction, mode.clone(), fail).await?;
            let transaction = owned(&mut client).await?;
            accepting(&mut client, transaction, mode.clone(), fail).await?;
        }
    }
    close_controller(controller).await?;
    Ok(client)
}

/// Each outcome but accepted, for a message of its own, applied by the commit and forgotten by the rollback.
pub async fn outcomes(mut client: Client) -> Checked<Client> {
    let controller = controller(&mut client).await?;
    let outcomes = [
        (Outcome::Rejected(Rejected { error: None }), None),
        (Outcome::Released(Released {}), Some(0)),
        (Outcome::Modified(modified(true, false)), Some(1)),
    ];
    for (outcome, delivery_count) in outcomes {
        for fail in [true, false] {
            client.send(texts(&["first"])).await?;
            let mut receiver = client.receiver(0).await?;
            let mut acquisition = acquire(declare(&controller).await?, &mut receiver, 1).await?;
            let delivery = receive_in(&mut acquisition).await?;
            let retired = match &outcome {
                Outcome::Rejected(_) => step("reject", acquisition.reject(&delivery, None)).await,
                Outcome::Released(_) => step("release", acquisition.release(&delivery)).await,
                _ => step("modify", acquisition.modify(&delivery, modified(true, false))).await,
            };
            retired?;
            nothing_there(&mut client, "before the discharge").await?;
            end(acquisition, fail).await?;
            if let Some(delivery_count) = if fail { Some(0) } else { delivery_count } {
                let next = client.next().await?;
                let got = (body_of(&next), header_of(&next).delivery_count);
                expect("comes again, delivery-count", (string("first"), delivery_count), got)?;
            }
            nothing_there(&mut client, "after the discharge").await?;
            close(receiver).await?;
        }
    }
    close_controller(controller).await?;
    Ok(client)
}

/// What a rollback gives back lies before what came later.
pub async fn back_in_place(mut client: Client) -> Checked<Client> {
    client.send(texts(&["1", "2", "3"])).await?;
    let mut receiver = client.receiver(0).await?;
    let mut acquisition = acquire(owned(&mut client).await?, &mut receiver, 2).await?;
    acquire_all(&mut acquisition, &["1", "2"], true).await?;
    client.send(texts(&["4"])).await?;
    end(acquisition, true).await?;
    expect_left(&mut client, &["1", "2", "3", "4"]).await?;
    Ok(client)
}

/// What has no outcome at the commit stays with the link, acquired and unsettled; a rollback gives it back.
pub async fn without_outcome(mut client: Client) -> Checked<Client> {
    for fail in [true, false] {
        client.send(texts(&["1", "2"])).await?;
        let mut receiver = client.receiver(0).await?;
        let mut acquisition = acquire(owned(&mut client).await?, &mut receiver, 2).await?;
        let deliveries = acquire_all(&mut acquisition, &["1", "2"], false).await?;
        step("accept", acquisition.accept(&deliveries[0])).await?;
        end(acquisition, fail).await?;
        if fail {
            expect_left(&mut client, &["1", "2"]).await?;
        } else {
            nothing_there(&mut client, "at another link after the commit").await?;
            step("release", receiver.release(&deliveries[1])).await?;
            expect_left(&mut client, &["2"]).await?;
        }
        close(receiver).await?;
    }
    Ok(client)
}

pub async fn settled(mut client: Client) -> Checked<Client> {
    for fail in [true, false] {
        client.send(texts(&["1", "2"])).await?;
        let source = Source::builder().address(client.queue()).build();
        let modes = (SenderSettleMode::Settled, ReceiverSettleMode::First);
        let mut receiver = client.receiver_of(source, 0, modes.0, modes.1).await?;
        let mut acquisition = acquire(owned(&mut client).await?, &mut receiver, 2).await?;
        acquire_all(&mut acquisition, &["1", "2"], false).await?;
        nothing_there(&mut client, "before the discharge").await?;
        end(acquisition, fail).await?;
        expect_left(&mut client, if fail { &["1", "2"] } else { &[] }).await?;
        close(receiver).await?;
    }
    Ok(client)
}

/// The library's own way: it drains before it discharges, so that the credit left over brings nothing more.
pub async fn credit_drained(mut client: Client) -> Checked<Client> {
    for fail in [true, false] {
        client.send(texts(&["first"])).await?;
        let mut receiver = client.receiver(0).await?;
        let mut acquisition = acquire(owned(&mut client).await?, &mut receiver, 5).await?;
        acquire_all(&mut acquisition, &["first"], true).await?;
        end(acquisition, fail).await?;
        expect_left(&mut client, if fail { &["first"] } else { &[] }).await?;
        client.send(texts(&["later"])).await?;
        step("credit", receiver.set_credit(1)).await?;
        expect("with new credit", string("later"), body_of(&accept(&mut receiver).await?))?;
        close(receiver).await?;
        nothing_there(&mut client, "after it").await?;
    }
    Ok(client)
}

fn forget_id(receiver: &mut Receiver) {
    receiver.properties_mut(|properties| {
        if let Some(properties) = properties {
            properties.swap_remove(&Symbol::from("txn-id"));
        }
    });
}

/// Discharged with credit left over, which stays, and what it brings now is in no transaction (4.4.3): it can be
/// accepted plainly, and the next transaction's end does not touch it.
pub async fn credit_left(mut client: Client) -> Checked<Client> {
    for fail in [true, false] {
        client.send(texts(&["first"])).await?;
        let mut receiver = client.receiver(0).await?;
        let mut acquisition = acquire(owned(&mut client).await?, &mut receiver, 4).await?;
        acquire_all(&mut acquisition, &["first"], true).await?;
        step("discharge", acquisition.txn_mut().discharge(fail)).await?;
        drop(acquisition);
        forget_id(&mut receiver);
        if fail {
            expect("given back, here again", string("first"), body_of(&accept(&mut receiver).await?))?;
        }
        client.send(texts(&["outside"])).await?;
        let outside = receive(&mut receiver).await?;
        expect("with the credit left", string("outside"), body_of(&outside))?;
        let other = owned(&mut client).await?;
        discharge(other, true).await?;
        step("accept", receiver.accept(&outside)).await?;
        close(receiver).await?;
        nothing_there(&mut client, "after it").await?;
    }
    Ok(client)
}

/// The flow with more credit carries no properties; the link's txn-id stays what it was until the discharge.
pub async fn more_credit(mut client: Client) -> Checked<Client> {
    client.send(texts(&["1", "2"])).await?;
    let mut receiver = client.receiver(0).await?;
    let mut acquisition = acquire(owned(&mut client).await?, &mut receiver, 1).await?;
    acquire_all(&mut acquisition, &["1"], false).await?;
    step("credit", acquisition.set_credit(1)).await?;
    acquire_all(&mut acquisition, &["2"], false).await?;
    end(acquisition, true).await?;
    expect_left(&mut client, &["1", "2"]).await?;
    Ok(client)
}

/// The library's flows keep `drain` from the end of the acquisition before: this one gets what is there, no more.
pub async fn drained(mut client: Client) -> Checked<Client> {
    client.send(texts(&["1"])).await?;
    let mut receiver = client.receiver(0).await?;
    let mut acquisition = acquire(owned(&mut client).await?, &mut receiver, 1).await?;
    acquire_all(&mut acquisition, &["1"], true).await?;
    end(acquisition, true).await?;
    client.send(texts(&["2"])).await?;
    let mut acquisition = acquire(owned(&mut client).await?, &mut receiver, 5).await?;
    acquire_all(&mut acquisition, &["1", "2"], true).await?;
    client.send(texts(&["later"])).await?;
    let mut other = client.receiver(1).await?;
    expect("at another link after the drain", string("later"), body_of(&accept(&mut other).await?))?;
    close(other).await?;
    end(acquisition, false).await?;
    nothing_there(&mut client, "after the commit").await?;
    Ok(client)
}

/// fe2o3-amqp 0.18.4 sends a flow in the drop of an acquisition and waits for it: tokio allows that on no thread of
/// its own and panics. So it is dropped on another.
pub async fn dropped(mut client: Client) -> Checked<Client> {
    client.send(texts(&["1", "2"])).await?;
    let mut receiver = client.receiver(0).await?;
    let mut acquisition = acquire(owned(&mut client).await?, &mut receiver, 2).await?;
    acquire_all(&mut acquisition, &["1", "2"], true).await?;
    thread::scope(|scope| {
        scope.spawn(|| drop(acquisition));
    });
    expect_left(&mut client, &["1", "2"]).await?;
    Ok(client)
}

/// A browser acquires nothing, so its link supports no acquisition: amqp:not-implemented (4.4.3).
pub async fn browser(mut client: Client) -> Checked<Client> {
    client.send(texts(&["first"])).await?;
    let source = Source::builder().address(client.queue()).distribution_mode(DistributionMode::Copy).build();
    let modes = (SenderSettleMode::Unsettled, ReceiverSettleMode::First);
    let mut receiver = client.receiver_of(source, 0, modes.0, modes.1).await?;
    let transaction = owned(&mut client).await?;
    let mut acquisition = acquire(transaction, &mut receiver, 1).await?;
    let answer = format!("{:?}", acquisition.recv::<Body<Value>>().await.map(|delivery| body_of(&delivery)));
    expect(&format!("the link is detached with not-implemented: {answer}"), true, answer.contains("NotImplemented"))?;
    step("rollback", acquisition.txn_mut().discharge(true)).await?;
    drop(acquisition);
    expect_left(&mut client, &["first"]).await?;
    Ok(client)
}

/// Consumes, transforms and produces in one transaction after another, with a rollback now and then.
pub async fn moved(mut client: Client) -> Checked<Client> {
    const MESSAGES: i32 = 200;
    client.send((0..MESSAGES).map(|n| value(Value::Int(n))).collect()).await?;
    let target = format!("{}-out", client.queue());
    let name = client.link_name();
    let mut sender = step("attach", fe2o3_amqp::Sender::attach(client.session(), name, target.clone())).await?;
    let controller = controller(&mut client).await?;
    let mut receiver = client.receiver(0).await?;
    let (mut left, mut round) = (MESSAGES, 0);
    while left > 0 {
        round += 1;
        let size = left.min(1 + round * 5 % 13);
        let mut acquisition = acquire(declare(&controller).await?, &mut receiver, size as u32).await?;
        for _ in 0..size {
            let delivery = receive_in(&mut acquisition).await?;
            let produced = sendable(value(body_of(&delivery)));
            let outcome = step("post", acquisition.txn().post(&mut sender, produced)).await?;
            expect("outcome of a post", true, outcome == Outcome::Accepted(Accepted {}))?;
            step("accept", acquisition.accept(&delivery)).await?;
        }
        let fail = round % 3 == 0;
        end(acquisition, fail).await?;
        // fe2o3-amqp 0.18.4 would go on with `drain` set. The answer to a drain sets its delivery-count to that of the
        // broker, and what waits to be received then is counted again: its next flow gives credit that nobody asked
        // for. This flow takes `drain` back.
        step("credit", receiver.set_credit(0)).await?;
        left -= if fail { 0 } else { size };
    }
    close(receiver).await?;
    nothing_there(&mut client, "in the first queue").await?;
    let name = client.link_name();
    let mut receiver = step("attach", Receiver::attach(client.session(), name, target)).await?;
    step("send", sender.send(sendable(text("fence")))).await?;
    let mut expected: Vec<Value> = (0..MESSAGES).map(Value::Int).collect();
    expected.extend(strings(&["fence"]));
    let got = accept_bodies(&mut receiver, expected.len()).await?;
    expect("in the second queue, in order", expected, got)?;
    close_controller(controller).await?;
    Ok(client)
}
