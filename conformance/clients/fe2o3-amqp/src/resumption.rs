//! Links that are detached and attached again: on their session with their unsettled deliveries (2.6.13); on another
//! connection the library tells none (its map is null there), so nothing is left unsettled when one is changed.

use fe2o3_amqp::link::delivery::Sendable;
use fe2o3_amqp::link::receiver::{CreditMode, ResumingReceiver};
use fe2o3_amqp::{Receiver, Sender};
use fe2o3_amqp_types::definitions::{ReceiverSettleMode, SenderSettleMode};
use fe2o3_amqp_types::messaging::{Body, Outcome, Source, Target, TerminusExpiryPolicy};
use serde_amqp::Value;

use crate::client::{
    Checked, Client, accept, accept_bodies, body_of, close, expect, step, string, strings, text, texts, value,
};

const LASTS_S: u32 = 60;
const ROUNDS: i32 = 10;
const POSTS: i32 = 20;

/// Posts and leaves again and again before the outcomes are there: after the last round each message is there once.
pub async fn sending(mut client: Client) -> Checked<Client> {
    let target = Target::builder().address(client.queue()).expiry_policy(TerminusExpiryPolicy::ConnectionClose);
    let builder = Sender::builder().name(client.link_name()).target(target.timeout(LASTS_S).build());
    let builder = builder.sender_settle_mode(SenderSettleMode::Unsettled);
    let mut sender = step("attach", builder.attach(client.session())).await?;
    let mut waiting = Vec::new();
    for round in 0..ROUNDS {
        for number in 0..POSTS {
            let sendable = Sendable::builder().message(value(Value::Int(round * POSTS + number))).build();
            waiting.push(step("send", sender.send_batchable(sendable)).await?);
        }
        let detached = sender.detach().await.map_err(|(_, error)| format!("detach: {error:?}"))?;
        let next = client.another().await?;
        client.close().await?;
        client = next;
        sender = step("resume", detached.resume_on_session(client.session())).await?;
    }
    for outcome in waiting {
        let outcome = step("outcome", outcome).await?;
        expect("outcome is accepted", true, matches!(outcome, Outcome::Accepted(_)))?;
    }
    step("close the sender", sender.close()).await?;
    let mut receiver = client.receiver(ROUNDS as u32 * POSTS as u32).await?;
    let mut found = accept_bodies(&mut receiver, (ROUNDS * POSTS) as usize).await?;
    close(receiver).await?;
    found.sort_by_key(|body| if let Value::Int(number) = body { *number } else { -1 });
    expect("each once", (0..ROUNDS * POSTS).map(Value::Int).collect::<Vec<_>>(), found)?;
    client.send(vec![text("the end")]).await?;
    expect("and no other", string("the end"), body_of(&client.next().await?))?;
    Ok(client)
}

/// What was received and has no outcome when the link leaves is the link's still when it comes back.
async fn receiving(mut client: Client, mode: ReceiverSettleMode) -> Checked<Client> {
    client.send(texts(&["first", "second", "third"])).await?;
    let source = Source::builder().address(client.queue()).expiry_policy(TerminusExpiryPolicy::ConnectionClose);
    let builder = Receiver::builder().name(client.link_name()).source(source.timeout(LASTS_S).build());
    let builder = builder.credit_mode(CreditMode::Manual).receiver_settle_mode(mode);
    let mut receiver = step("attach", builder.attach(client.session())).await?;
    step("credit", receiver.set_credit(2)).await?;
    expect("first", string("first"), body_of(&accept(&mut receiver).await?))?;
    step("receive", receiver.recv::<Body<Value>>()).await?;
    let detached = receiver.detach().await.map_err(|(_, error)| format!("detach: {error:?}"))?;
    let resumed = step("resume", detached.resume()).await?;
    expect("something is resumed", true, matches!(resumed, ResumingReceiver::Resume(_)))?;
    let mut receiver = resumed.into_receiver();
    step("credit", receiver.set_credit(5)).await?;
    expect("resumed, then next", strings(&["second", "third"]), accept_bodies(&mut receiver, 2).await?)?;
    close(receiver).await?;
    client.send(vec![text("the end")]).await?;
    expect("and no other", string("the end"), body_of(&client.next().await?))?;
    Ok(client)
}

pub async fn receiving_first(client: Client) -> Checked<Client> {
    receiving(client, ReceiverSettleMode::First).await
}

pub async fn receiving_second(client: Client) -> Checked<Client> {
    receiving(client, ReceiverSettleMode::Second).await
}
