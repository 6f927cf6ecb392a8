//! Connections between nodes, over real sockets.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use raft::eraftpb::{Message, MessageType};

use crate::cluster::{
    GroupId, NodeId,
    time::shared_time::SharedTime,
    transport::{
        connections::Connections,
        frame::{HANDSHAKE_BYTES_MAX, PROTOCOL_VERSION, Sealed},
        handshake::{ClusterKey, Dialing, Identity, UNKNOWN_NODE},
        join::{self, JoinError, JoinRequest, JoinResponse, Welcome},
        message::{PeerMessage, RaftMessage, Reply},
        peers::PeerEvent,
    },
};

const CLUSTER: u64 = 77;
const TIMEOUT: Duration = Duration::from_secs(30);
/// A node of this number is not let in.
const NUMBER_TAKEN: NodeId = 2;

fn identity(node: NodeId, secret: u8) -> Identity {
    Identity {
        cluster: CLUSTER,
        node,
        key: ClusterKey::new(&[secret; 32]).unwrap(),
    }
}

fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

type Received = Arc<Mutex<Vec<(NodeId, PeerMessage)>>>;

fn start(
    identity: Identity,
    listener: TcpListener,
    peers: &[(NodeId, &str)],
) -> (Connections, Received) {
    let received = Received::default();
    let inbox = Arc::clone(&received);
    let peers = peers
        .iter()
        .map(|(node, address)| (*node, (*address).to_owned()));
    let handler = move |from, event| {
        if let PeerEvent::Message(message) = event {
            inbox.lock().unwrap().push((from, message));
        }
    };
    let peers = peers.collect::<BTreeMap<_, _>>();
    let join_handler = |request: JoinRequest, reply: Reply| {
        let response = match request.node {
            NUMBER_TAKEN => JoinResponse::Refused(format!("node {NUMBER_TAKEN} is taken")),
            node => JoinResponse::Welcome(Welcome {
                node,
                nodes: [(1, request.address)].into(),
            }),
        };
        reply(response.encode());
    };
    let connections = Connections::new(identity, &peers, Box::new(handler), Box::new(join_handler));
    connections.start(listener).unwrap();
    (connections, received)
}

fn message(term: u64) -> PeerMessage {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgHeartbeat);
    message.term = term;
    let sync = SharedTime::new(1, None).outgoing(2, 0, 0);
    PeerMessage::Raft(sync, vec![RaftMessage::new(GroupId::META, message)])
}

/// Waits for other tasks to bring something about.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, waiting).await.expect(what);
}

#[tokio::test]
async fn messages_arrive_in_order_both_ways_over_one_connection() {
    let ((here, our_address), (there, their_address)) = (listener(), listener());
    let (one, at_one) = start(identity(1, 5), here, &[(2, &their_address)]);
    let (two, at_two) = start(identity(2, 5), there, &[(1, &our_address)]);
    until("a connection", || {
        one.is_connected(2) && two.is_connected(1)
    })
    .await;
    for term in 0..100 {
        assert!(one.send(2, &message(term)));
        assert!(two.send(1, &message(1_000 + term)));
    }
    until("all messages", || {
        at_one.lock().unwrap().len() == 100 && at_two.lock().unwrap().len() == 100
    })
    .await;
    let expected: Vec<_> = (0..100).map(|term| (1, message(term))).collect();
    assert_eq!(*at_two.lock().unwrap(), expected);
    let expected: Vec<_> = (0..100).map(|term| (2, message(1_000 + term))).collect();
    assert_eq!(*at_one.lock().unwrap(), expected);
    assert_eq!(one.counts().connected.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_node_that_comes_back_is_connected_again() {
    let ((here, our_address), (there, their_address)) = (listener(), listener());
    let (one, _) = start(identity(1, 5), here, &[(2, &their_address)]);
    let (two, _) = start(identity(2, 5), there, &[(1, &our_address)]);
    until("a connection", || one.is_connected(2)).await;
    drop(two);
    until("its end", || !one.is_connected(2)).await;
    assert!(!one.send(2, &message(1)));
    assert_eq!(one.counts().dropped_messages.load(Ordering::Relaxed), 1);
    let (_two, at_two) = start(identity(2, 5), listener().0, &[(1, &our_address)]);
    until("a new connection", || one.is_connected(2)).await;
    assert!(one.send(2, &message(2)));
    until("the message", || !at_two.lock().unwrap().is_empty()).await;
}

#[tokio::test]
async fn a_node_without_the_key_gets_nowhere() {
    let ((here, our_address), (there, their_address)) = (listener(), listener());
    let (one, at_one) = start(identity(1, 5), here, &[(2, &their_address)]);
    let (stranger, _) = start(identity(2, 6), there, &[(1, &our_address)]);
    // The dialling side hears first that the other does not know its key.
    until("a refusal", || {
        stranger.counts().refused_nodes.load(Ordering::Relaxed) > 0
    })
    .await;
    assert!(!one.is_connected(2) && !stranger.is_connected(1));
    assert!(at_one.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_node_that_is_no_member_gets_nowhere() {
    let ((here, our_address), (there, _)) = (listener(), listener());
    let (one, _) = start(identity(1, 5), here, &[(2, "127.0.0.1:1")]);
    let (_stranger, _) = start(identity(3, 5), there, &[(1, &our_address)]);
    until("a refusal", || {
        one.counts().refused_nodes.load(Ordering::Relaxed) > 0
    })
    .await;
}

/// Sends bytes and waits for the connection to be closed; gives back what came.
async fn call(address: SocketAddr, bytes: Vec<u8>) -> usize {
    let calling = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        // The other side may close before it has read everything.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer.len()
    });
    calling.await.unwrap()
}

/// A greeting as a member would send it.
fn hello(cluster: u64) -> Vec<u8> {
    let two = identity(2, 5);
    let (_, hello) = Dialing::begin(&two, 1, [0; 32]);
    let mut frame = Vec::new();
    Sealed::handshake(cluster)
        .seal(&rmp_serde::to_vec(&hello).unwrap(), &mut frame)
        .unwrap();
    frame
}

#[tokio::test]
async fn bad_frames_close_the_connection_and_are_counted() {
    let (here, address) = listener();
    let address: SocketAddr = address.parse().unwrap();
    let (one, at_one) = start(identity(1, 5), here, &[(2, "127.0.0.1:1")]);
    let refused = || one.counts().refused_frames.load(Ordering::Relaxed);

    let mut other_version = hello(CLUSTER);
    other_version[4] = PROTOCOL_VERSION + 1;
    let mut flipped = hello(CLUSTER);
    *flipped.last_mut().unwrap() ^= 1;
    let mut not_a_hello = Vec::new();
    Sealed::handshake(CLUSTER)
        .seal(b"\xc1", &mut not_a_hello)
        .unwrap();
    let oversize = u32::try_from(HANDSHAKE_BYTES_MAX + 1)
        .unwrap()
        .to_be_bytes();
    let bad = [
        ("an HTTP request", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("zeros", vec![0; 100]),
        ("oversize", oversize.to_vec()),
        ("another version", other_version),
        ("another cluster", hello(CLUSTER + 1)),
        ("a flipped bit", flipped),
        ("no greeting", not_a_hello),
    ];
    for (count, (what, bytes)) in (1..).zip(bad) {
        let answered = call(address, bytes).await > 0;
        // A node of another cluster is told which one this is, so that it can say so to its
        // operator.
        assert_eq!(answered, what == "another cluster", "{what}");
        until(what, || refused() == count).await;
    }
    // Cut short, it is a broken connection like any other.
    let cut = hello(CLUSTER);
    assert_eq!(call(address, cut[..cut.len() - 1].to_vec()).await, 0);
    // A recorded greeting is answered, but without the key the answer is of no use.
    let replayed = [hello(CLUSTER), hello(CLUSTER)].concat();
    assert!(call(address, replayed).await > 0);
    until("the second hello in the place of a proof", || {
        refused() == 8
    })
    .await;
    assert!(at_one.lock().unwrap().is_empty());
}

#[tokio::test]
async fn nodes_come_and_go() {
    let ((here, our_address), (there, their_address)) = (listener(), listener());
    let (one, _) = start(identity(1, 5), here, &[]);
    let (two, _) = start(identity(2, 5), there, &[(1, &our_address)]);
    until("the stranger is refused", || {
        one.counts().refused_nodes.load(Ordering::Relaxed) > 0
    })
    .await;
    one.set_nodes(&[(2, their_address.clone())].into());
    until("the new node is connected", || one.is_connected(2)).await;
    one.set_nodes(&BTreeMap::new());
    until("the node is gone", || !two.is_connected(1)).await;
    assert!(one.connected().is_empty());
}

#[tokio::test]
async fn a_node_is_let_in_if_it_knows_name_and_key_and_its_number_is_free() {
    let (here, address) = listener();
    let (_one, _) = start(identity(1, 5), here, &[]);
    let request = |node| JoinRequest {
        node,
        address: "new:1".to_owned(),
        asks_only: false,
    };
    let welcome = join::join(&identity(UNKNOWN_NODE, 5), &address, &request(4)).await;
    let nodes: BTreeMap<NodeId, String> = [(1, "new:1".to_owned())].into();
    assert_eq!(welcome.unwrap(), Welcome { node: 4, nodes });
    let refused = |asked: Result<Welcome, JoinError>| match asked {
        Err(JoinError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    let taken = join::join(&identity(UNKNOWN_NODE, 5), &address, &request(NUMBER_TAKEN)).await;
    assert_eq!(refused(taken), "node 2 is taken");
    let keyless = join::join(&identity(UNKNOWN_NODE, 6), &address, &request(4)).await;
    assert!(refused(keyless).contains("key"));
    let foreign = Identity {
        cluster: CLUSTER + 1,
        ..identity(UNKNOWN_NODE, 5)
    };
    let foreign = join::join(&foreign, &address, &request(4)).await;
    assert!(refused(foreign).contains("another cluster"));
    let (_, nobody) = listener();
    let away = join::join(&identity(UNKNOWN_NODE, 5), &nobody, &request(4)).await;
    assert!(matches!(away, Err(JoinError::Later(_))), "{away:?}");
}
