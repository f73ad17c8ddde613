//! Ports of a workspace that are opened like apps, without being named in the template.

/// Lower ports are not proxied.
pub const FIRST_PORT: u16 = 9;

/// Ports of protocols that browsers do not speak (agent 6.5).
const OTHER_PROTOCOLS: [u16; 24] = [
    20, 21, 22, 23, 25, 53, 110, 143, 179, 389, 465, 587, 636, 989, 990, 993, 995, 3306, 3389, 5432, 27017,
    27018, 27019, 28017,
];

/// A port as it stands in a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The number.
    pub number: u16,
    /// Whether HTTPS is spoken to it: a trailing `s`.
    pub tls: bool,
}

impl Port {
    /// Reads a number with or without a trailing `s`; none for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (digits, tls) = text.strip_suffix('s').map_or((text, false), |digits| (digits, true));
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse().ok().filter(|_| is_number)?;
        Some(Self { number, tls })
    }

    /// The URL that an app on this port would have in a template.
    #[must_use]
    pub fn url(self) -> String {
        format!("{}://127.0.0.1:{}", if self.tls { "https" } else { "http" }, self.number)
    }
}

/// Whether people may want to open this port in a browser.
#[must_use]
pub fn is_worth_showing(port: u16) -> bool {
    port >= FIRST_PORT && !OTHER_PROTOCOLS.contains(&port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_of_16_bits() {
        assert_eq!(Port::parse("8080"), Some(Port { number: 8080, tls: false }));
        assert_eq!(Port::parse("8080s"), Some(Port { number: 8080, tls: true }));
        assert_eq!(Port::parse("8443s").unwrap().url(), "https://127.0.0.1:8443");
        for other in ["", "s", "65536", "-1", "+1", "8080ss", "code", "80a"] {
            assert_eq!(Port::parse(other), None, "{other}");
        }
    }

    #[test]
    fn ports_of_other_protocols_are_not_shown() {
        assert!(is_worth_showing(8080) && is_worth_showing(80));
        for port in [1, 8, 22, 5432, 27019] {
            assert!(!is_worth_showing(port), "{port}");
        }
    }
}
