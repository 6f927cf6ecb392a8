//! How a node comes into a cluster that runs: it knows the address of one node and the cluster's key, proves that it does, says who it wants to be, and is told who the
//! others are. After that it is a node like the others, with nothing yet.
//!
//! The greeting is the one of [`super::handshake`], from nobody to whoever answers; then the wish and the answer to it, each in one sealed frame.

use std::{collections::BTreeMap, fmt, io, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncWriteExt as _, net::TcpStream, sync::oneshot, time::timeout};

use super::{
    NodeId,
    frame::{Refused, Sealed},
    handshake::{ANYBODY, Dialing, Distrust, Identity, Session},
    links::{self, Ended},
    member::Reply,
};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);
/// How long the other node may take to have the cluster agree.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);

/// Who a node wants to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// 0: the cluster may choose.
    pub node: NodeId,
    /// Where the others reach it.
    pub address: String,
    /// Asks only whether the node is still a member; nothing is changed.
    #[serde(default)]
    pub asks_only: bool,
}

/// Who the node is, and where all nodes are reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    pub node: NodeId,
    pub nodes: BTreeMap<NodeId, String>,
}

/// What a cluster says to a wish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    Welcome(Welcome),
    /// The wish must change first.
    Refused(String),
    /// The cluster cannot decide now.
    Later(String),
    /// The node was a member and was taken out.
    TakenOut,
}

/// Answers a wish by calling back once, with an encoded [`Verdict`].
pub type Door = Box<dyn Fn(Wish, Reply) + Send + Sync>;

impl Verdict {
    pub fn encode(&self) -> Bytes {
        rmp_serde::to_vec(self)
            .expect("an enum of numbers and texts has a MessagePack form")
            .into()
    }
}

/// Why a node is not in.
#[derive(Debug)]
pub enum NotIn {
    /// The cluster's name or its key differs, or the wish cannot be granted: trying again is of no use.
    Refused(String),
    /// Nobody answers, or the cluster cannot decide now.
    Later(String),
}

impl fmt::Display for NotIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(why) | Self::Later(why)) = self;
        f.write_str(why)
    }
}

/// Asks the node at an address to be let in. `identity` is of nobody, with the cluster's name and key.
pub async fn ask(identity: &Identity, address: &str, wish: &Wish) -> Result<Welcome, NotIn> {
    let asked = timeout(ANSWER_TIME_MAX, converse(identity, address, wish));
    let ended = match asked.await {
        Ok(Ok(Verdict::Welcome(welcome))) => return Ok(welcome),
        Ok(Ok(Verdict::Refused(why))) => return Err(NotIn::Refused(why)),
        Ok(Ok(Verdict::Later(why))) => return Err(NotIn::Later(why)),
        Ok(Ok(Verdict::TakenOut)) => {
            return Err(NotIn::Refused(format!("node {} was taken out", wish.node)));
        }
        Ok(Err(ended)) => ended,
        Err(_) => Ended::Silent,
    };
    Err(match ended {
        Ended::Frame(Refused::Cluster(_)) => {
            NotIn::Refused(format!("the node at {address} belongs to another cluster"))
        }
        Ended::Distrust(Distrust::Proof) => NotIn::Refused(format!(
            "the node at {address} does not know this node's cluster key"
        )),
        Ended::Frame(refused) => NotIn::Refused(format!("the node at {address}: {refused}")),
        ended => NotIn::Later(format!("the node at {address} does not answer: {ended}")),
    })
}

/// Asks the node at an address whether a node was taken out of the cluster. `false` also when
/// nobody answers.
pub async fn is_taken_out(identity: &Identity, address: &str, node: NodeId) -> bool {
    let wish = Wish {
        node,
        address: String::new(),
        asks_only: true,
    };
    let asked = timeout(ANSWER_TIME_MAX, converse(identity, address, &wish));
    matches!(asked.await, Ok(Ok(Verdict::TakenOut)))
}

async fn converse(identity: &Identity, address: &str, wish: &Wish) -> Result<Verdict, Ended> {
    let mut stream = timeout(CONNECT_TIME_MAX, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    let cluster = identity.cluster;
    let (mut ours, mut theirs) = (Sealed::greeting(cluster), Sealed::greeting(cluster));
    let (dialing, hello) = Dialing::begin(identity, ANYBODY, links::nonce());
    links::say(&mut stream, &mut ours, &hello).await?;
    let challenge = links::hear(&mut stream, &mut theirs).await?;
    let (proof, session) = dialing.finish(&challenge)?;
    links::say(&mut stream, &mut ours, &proof).await?;
    let mut ours = Sealed::session(cluster, &session.send);
    let mut theirs = Sealed::session(cluster, &session.receive);
    links::say(&mut stream, &mut ours, wish).await?;
    links::hear(&mut stream, &mut theirs).await
}

/// Serves a node that has proved that it knows the key, and wants to come in.
pub(super) async fn serve(
    mut stream: TcpStream,
    session: &Session,
    cluster: u64,
    door: &Door,
) -> Result<(), Ended> {
    let mut ours = Sealed::session(cluster, &session.send);
    let mut theirs = Sealed::session(cluster, &session.receive);
    let wish = links::hear(&mut stream, &mut theirs).await?;
    let (reply, answer) = oneshot::channel();
    door(
        wish,
        Box::new(move |answer| {
            let _ = reply.send(answer);
        }),
    );
    let gone = || io::Error::other("the node is stopping");
    let answer: Bytes = answer.await.map_err(|_| gone())?;
    let mut frame = Vec::new();
    ours.seal(&answer, &mut frame)?;
    Ok(stream.write_all(&frame).await?)
}
