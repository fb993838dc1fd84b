//! The HTTP clients for model providers: no redirects, no proxies of the environment, and where it is asked, no private
//! addresses, neither written out nor behind a name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::limits::MODEL_CONNECT_TIMEOUT;
use crate::runtime::GatewayTarget;

/// One client for each rule; both share nothing with other homes but code.
pub(super) struct Clients {
    any: reqwest::Client,
    public: reqwest::Client,
}

impl Clients {
    pub(super) fn build() -> reqwest::Result<Self> {
        // An error means that the process has a provider already.
        drop(rustls::crypto::ring::default_provider().install_default());
        let base = || {
            reqwest::Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .connect_timeout(MODEL_CONNECT_TIMEOUT)
        };
        Ok(Self {
            any: base().build()?,
            public: base()
                .dns_resolver(std::sync::Arc::new(PublicOnly))
                .build()?,
        })
    }

    pub(super) fn for_target(&self, target: &GatewayTarget) -> reqwest::Client {
        if target.allow_private {
            self.any.clone()
        } else {
            self.public.clone()
        }
    }
}

/// Whether a base URL names a private address itself, past every resolver.
pub(super) fn names_private_address(base_url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(base_url) else {
        return false;
    };
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse().is_ok_and(is_private)
}

struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> =
                found.filter(|address| !is_private(address.ip())).collect();
            if public.is_empty() {
                return Err("the provider's name leads to no public address".into());
            }
            let addresses: Addrs = Box::new(public.into_iter());
            Ok(addresses)
        })
    }
}

/// Loopback, private, link-local, shared, documentation, multicast and unspecified addresses, also inside IPv6 forms.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_private_v4(v4),
        IpAddr::V6(v6) => v6
            .to_ipv4_mapped()
            .map_or_else(|| is_private_v6(v6), is_private_v4),
    }
}

fn is_private_v4(v4: Ipv4Addr) -> bool {
    let [a, b, ..] = v4.octets();
    v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_multicast()
        || v4.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b))
}

fn is_private_v6(v6: Ipv6Addr) -> bool {
    let segments = v6.segments();
    v6.is_loopback()
        || v6.is_unspecified()
        || v6.is_multicast()
        || v6.is_unique_local()
        || v6.is_unicast_link_local()
        // IPv4 behind translation prefixes, and the compatible form.
        || segments[..2] == [0x64, 0xff9b]
        || segments[0] == 0x2002
        || segments[..6] == [0; 6]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known_in_every_form() {
        for host in [
            "127.0.0.1",
            "10.1.2.3",
            "169.254.169.254",
            "[::1]",
            "[::ffff:10.0.0.1]",
            "[fd00::1]",
            "100.64.0.1",
        ] {
            assert!(
                names_private_address(&format!("http://{host}:1/v1")),
                "{host}"
            );
        }
        // Other spellings of 127.0.0.1 are made plain by the parser of addresses.
        assert!(names_private_address("http://2130706433/v1"));
        assert!(names_private_address("http://0x7f.1/v1"));
        for host in ["8.8.8.8", "[2606:4700::1]", "example.org"] {
            assert!(
                !names_private_address(&format!("https://{host}/v1")),
                "{host}"
            );
        }
    }
}
