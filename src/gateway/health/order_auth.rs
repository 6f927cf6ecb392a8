//! Who may give orders on the health port. It works on plain data and knows no HTTP library.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use crate::{
    clock,
    gateway::{
        auth::{AuthHeaders, Authenticator, host_policy::HostPolicy},
        protocol::rights::Access,
    },
    model::{
        error::{Error, ErrorKind, Result},
        json::shorten,
    },
};

/// Seconds between two refusals that are logged.
const LOG_PAUSE_SECONDS: u64 = 10;

/// What a request says of its sender.
#[derive(Clone, Debug, Default)]
pub struct Sender<'a> {
    /// Where the connection comes from.
    pub peer: Option<IpAddr>,
    pub signature: AuthHeaders<'a>,
    /// Whether there is an `Origin` header: browsers add one to what web pages send.
    pub has_origin: bool,
    /// The `Host` headers and the authority of the URI.
    pub hosts: Vec<&'a [u8]>,
}

/// Proof that an order may be carried out; [`OrderAuth::check`] alone gives one.
#[derive(Debug, PartialEq, Eq)]
pub struct Permit(());

/// Lets orders through that are signed with a full account key or, with authentication off, come
/// from this machine; from a web page none.
pub struct OrderAuth {
    /// `None`: authentication is off.
    authenticator: Option<Arc<Authenticator>>,
    hosts: HostPolicy,
    /// When a refusal was last logged.
    logged_at: AtomicI64,
}

impl OrderAuth {
    pub fn new(authenticator: Option<Arc<Authenticator>>, hosts: HostPolicy) -> Self {
        Self {
            authenticator,
            hosts,
            logged_at: AtomicI64::new(0),
        }
    }

    /// Decides whether the order at `path` may be carried out for its sender.
    pub fn check(&self, verb: &str, path: &str, sender: &Sender<'_>) -> Result<Permit> {
        let now = i64::try_from(clock::wall().as_secs()).unwrap_or(i64::MAX);
        let checked = self.check_at(verb, path, sender, now);
        if let Err(error) = &checked
            && self.may_log(now)
        {
            let (path, reason) = (shorten(path), &error.message);
            tracing::warn!(path, peer = ?sender.peer, reason, "refused an order on the health port");
        }
        checked
    }

    /// Whether another refusal may be logged: a stranger must not fill the log.
    fn may_log(&self, now: i64) -> bool {
        let last = self.logged_at.load(Ordering::Relaxed);
        let due = now.abs_diff(last) >= LOG_PAUSE_SECONDS;
        due && self
            .logged_at
            .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    fn check_at(&self, verb: &str, path: &str, sender: &Sender<'_>, now: i64) -> Result<Permit> {
        let forbidden = |message: &str| Err(Error::new(ErrorKind::Forbidden, message));
        if sender.has_origin {
            return forbidden("orders are not taken from web pages: the request has an Origin");
        }
        self.hosts.check(sender.hosts.iter().copied())?;
        let Some(authenticator) = &self.authenticator else {
            let here = |peer: IpAddr| peer.to_canonical().is_loopback();
            return match sender.peer.is_some_and(here) {
                true => Ok(Permit(())),
                false => forbidden(
                    "with authentication off, orders are taken only from the machine of the node",
                ),
            };
        };
        let link = path.trim_start_matches('/');
        match authenticator.authenticate_order(verb, link, &sender.signature, now)? {
            Access::Full => Ok(Permit(())),
            Access::ReadOnly => forbidden("the key that signed the order is read-only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::auth::keys::{AccountKey, AccountKeys, EMULATOR_KEY};
    use crate::{
        client::{Signed, Signer},
        model::account::ORDER_RESOURCE_TYPE,
    };
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    const NOW: u64 = 1_767_225_600;
    const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

    fn read_only_key() -> String {
        BASE64.encode([7; 64])
    }

    fn signed() -> OrderAuth {
        let mut keys = AccountKeys::single(AccountKey::parse(EMULATOR_KEY).unwrap());
        keys.primary_readonly = Some(AccountKey::parse(&read_only_key()).unwrap());
        let authenticator = Arc::new(Authenticator::new(&keys));
        OrderAuth::new(Some(authenticator), HostPolicy::default())
    }

    fn authorization(key: &str, verb_lower: &str, link: &str) -> String {
        let mut lines = Vec::new();
        let signed = Signed {
            verb_lower,
            resource_type: ORDER_RESOURCE_TYPE,
            link,
        };
        let signer = Signer::new(key).unwrap();
        signer.write_headers(&mut lines, &signed, NOW);
        let lines = String::from_utf8(lines).unwrap();
        let (_, value) = lines.split_once("authorization: ").unwrap();
        value.trim().to_owned()
    }

    fn sender(authorization: Option<&str>) -> Sender<'_> {
        Sender {
            peer: Some([10, 0, 0, 1].into()),
            signature: AuthHeaders {
                authorization,
                x_ms_date: Some(DATE),
                date: None,
            },
            has_origin: false,
            hosts: vec![b"bolide:8080"],
        }
    }

    fn status(auth: &OrderAuth, path: &str, sender: &Sender<'_>) -> u16 {
        match auth.check_at("POST", path, sender, NOW.cast_signed()) {
            Ok(Permit(())) => 200,
            Err(error) => error.status(),
        }
    }

    #[test]
    fn a_full_key_gives_orders_and_each_signature_is_for_one_of_them() {
        let auth = signed();
        let good = authorization(EMULATOR_KEY, "post", "clock/confirm");
        assert_eq!(status(&auth, "/clock/confirm", &sender(Some(&good))), 200);
        assert_eq!(status(&auth, "/split", &sender(Some(&good))), 401);
        assert_eq!(status(&auth, "/clock/confirm", &sender(None)), 401);
        let slash = authorization(EMULATOR_KEY, "post", "/clock/confirm");
        assert_eq!(status(&auth, "/clock/confirm", &sender(Some(&slash))), 401);
        let drain = authorization(EMULATOR_KEY, "post", "cluster/drain/3");
        assert_eq!(
            status(&auth, "/cluster/drain/3", &sender(Some(&drain))),
            200
        );
        assert_eq!(
            status(&auth, "/cluster/drain/2", &sender(Some(&drain))),
            401
        );
    }

    #[test]
    fn a_read_only_key_gives_none() {
        let readonly = authorization(&read_only_key(), "post", "split");
        assert_eq!(status(&signed(), "/split", &sender(Some(&readonly))), 403);
    }

    #[test]
    fn an_old_signature_is_refused() {
        let good = authorization(EMULATOR_KEY, "post", "split");
        let late = NOW.cast_signed() + 901;
        let refused = signed().check_at("POST", "/split", &sender(Some(&good)), late);
        assert_eq!(refused.unwrap_err().status(), 403);
    }

    #[test]
    fn web_pages_give_none_whatever_they_know() {
        let good = authorization(EMULATOR_KEY, "post", "split");
        let open = OrderAuth::new(None, HostPolicy::default());
        for auth in [signed(), open] {
            let mut page = sender(Some(&good));
            page.peer = Some([127, 0, 0, 1].into());
            assert_eq!(status(&auth, "/split", &page), 200);
            page.has_origin = true;
            assert_eq!(status(&auth, "/split", &page), 403);
            page.has_origin = false;
            page.hosts = vec![b"localhost", b"evil.example"];
            assert_eq!(status(&auth, "/split", &page), 403);
        }
    }

    #[test]
    fn with_authentication_off_orders_come_from_this_machine() {
        let auth = OrderAuth::new(None, HostPolicy::default());
        let from = |peer: Option<&str>| Sender {
            peer: peer.map(|peer| peer.parse().unwrap()),
            ..sender(None)
        };
        for here in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(status(&auth, "/split", &from(Some(here))), 200, "{here}");
        }
        for away in [
            Some("10.0.0.1"),
            Some("::ffff:10.0.0.1"),
            Some("fe80::1"),
            None,
        ] {
            assert_eq!(status(&auth, "/split", &from(away)), 403, "{away:?}");
        }
    }
}
