//! How a client has reached this node, as it or a proxy in between says.

use http::header::{FORWARDED, HOST, HeaderName};

use super::names::{X_FORWARDED_HOST, X_FORWARDED_PROTO, text};
use crate::{gateway::call::Reached, server::Request};

/// With `trust_forwarded` a proxy's word counts before the client's, the newer header before
/// the older ones; without, such headers are the client's own and say nothing.
pub fn by(request: &Request, trust_forwarded: bool) -> Reached<'_> {
    let uri = request.uri();
    let host = || text(request.headers(), &HOST).or_else(|| Some(uri.authority()?.as_str()));
    if !trust_forwarded {
        return Reached {
            scheme: uri.scheme_str(),
            host: host(),
        };
    }
    Reached {
        scheme: forwarded(request, "proto")
            .or_else(|| first_of(request, &X_FORWARDED_PROTO))
            .or(uri.scheme_str()),
        host: forwarded(request, "host")
            .or_else(|| first_of(request, &X_FORWARDED_HOST))
            .or_else(host),
    }
}

/// The first value of a property in the `Forwarded` headers: `for=10.0.0.1;host="a:8081", for=10.0.0.2`.
fn forwarded<'a>(request: &'a Request, property: &str) -> Option<&'a str> {
    let values = request.headers().get_all(&FORWARDED);
    let mut pairs = values
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split([';', ',']))
        .filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case(property))?;
    Some(value.trim().trim_start_matches('"').trim_end_matches('"'))
}

/// The first of several values in one header.
fn first_of<'a>(request: &'a Request, name: &HeaderName) -> Option<&'a str> {
    text(request.headers(), name)?
        .split(',')
        .map(str::trim)
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Method, header::HeaderValue};

    type Headers = [(&'static str, &'static str)];

    fn check(uri: &str, headers: &Headers, trust: bool, expected: [Option<&str>; 2]) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        let request = Request::new(Method::GET, uri.parse().unwrap(), map, None);
        let [scheme, host] = expected;
        assert_eq!(
            by(&request, trust),
            Reached { scheme, host },
            "{uri} {headers:?} {trust}"
        );
    }

    #[test]
    fn the_client_says_how_it_has_reached_the_node() {
        for trust in [false, true] {
            check("/", &[], trust, [None, None]);
            check("/", &[("host", "db:1")], trust, [None, Some("db:1")]);
            check("https://db:2/", &[], trust, [Some("https"), Some("db:2")]);
        }
    }

    #[test]
    fn a_proxy_knows_better_where_it_is_trusted() {
        let old = [
            ("host", "inner"),
            ("x-forwarded-host", "outer, between"),
            ("x-forwarded-proto", "https"),
        ];
        check("/", &old, true, [Some("https"), Some("outer")]);
        check("/", &old, false, [None, Some("inner")]);
        let new = [
            ("x-forwarded-host", "outer"),
            ("forwarded", "for=10.0.0.1; Host=\"outer:443\";proto=https"),
            ("forwarded", "host=between"),
        ];
        let trusted = [Some("https"), Some("outer:443")];
        check("http://inner/", &new, true, trusted);
        check("http://inner/", &new, false, [Some("http"), Some("inner")]);
    }
}
