//! The scripts that start a workspace agent, one per platform (agent 1.1, 1.2).
//!
//! `${ARCH}` is replaced here; `${ACCESS_URL}` and `${AUTH_TYPE}` are left for the Terraform provider.

const LINUX: &str = include_str!("linux.sh");
const DARWIN: &str = include_str!("darwin.sh");
const WINDOWS: &str = include_str!("windows.ps1");

const PLATFORMS: [(&str, &str, &str); 7] = [
    ("linux", "amd64", LINUX),
    ("linux", "arm64", LINUX),
    ("linux", "armv7", LINUX),
    ("darwin", "amd64", DARWIN),
    ("darwin", "arm64", DARWIN),
    ("windows", "amd64", WINDOWS),
    ("windows", "arm64", WINDOWS),
];

/// The script for a platform; `None` when no agent exists for it.
pub fn script(os: &str, arch: &str) -> Option<String> {
    PLATFORMS
        .iter()
        .find(|(known_os, known_arch, _)| (*known_os, *known_arch) == (os, arch))
        .map(|(_, arch, text)| text.replace("${ARCH}", arch))
}

pub(crate) fn variables() -> impl Iterator<Item = (String, String)> {
    PLATFORMS
        .iter()
        .map(|(os, arch, text)| (format!("CODER_AGENT_SCRIPT_{os}_{arch}"), text.replace("${ARCH}", arch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_architecture_is_filled_in() {
        let text = script("linux", "arm64").unwrap();
        assert!(text.contains("bin/coder-linux-arm64") && !text.contains("${ARCH}"));
        assert!(text.contains("${ACCESS_URL}") && text.contains("${AUTH_TYPE}"));
        assert!(script("plan9", "amd64").is_none());
        assert_eq!(variables().count(), 7);
    }

    #[test]
    fn shell_scripts_are_valid() {
        for text in [LINUX, DARWIN] {
            let checked = std::process::Command::new("sh").args(["-n", "-c", text]).status().unwrap();
            assert!(checked.success());
        }
    }

    /// One request: its first line, headers and body.
    fn read_request(stream: &mut std::net::TcpStream) -> String {
        use std::io::Read as _;
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
            request.push(byte[0]);
        }
        let head = String::from_utf8(request).unwrap();
        let length = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).unwrap();
        head + &String::from_utf8(body).unwrap()
    }

    /// agent 1.2: what does not run as the agent is reported at once, and fetched again.
    #[test]
    fn agent_that_cannot_start_is_reported_and_fetched_again() {
        use std::io::Write as _;
        coder_requirements::require!(Curl);
        let folder = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let mut requests = Vec::new();
            // A wrong program, the report of it, and the right one.
            let wrong = "#!/bin/sh\necho something else\n";
            let right = "#!/bin/sh\n[ \"$1\" = agent ] || { echo Coder; exit; }\necho auth=$CODER_AGENT_AUTH url=$CODER_AGENT_URL\n";
            for body in [wrong, "{}", right] {
                let (mut stream, _) = listener.accept().unwrap();
                requests.push(read_request(&mut stream));
                let length = body.len();
                let answer =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                stream.write_all(answer.as_bytes()).unwrap();
            }
            requests
        });
        // No waiting in a test.
        let tools = folder.path().join("tools");
        std::fs::create_dir(&tools).unwrap();
        let sleep = tools.join("sleep");
        std::fs::write(&sleep, "#!/bin/sh\necho slept $1\n").unwrap();
        std::fs::set_permissions(&sleep, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let text =
            script("linux", "amd64").unwrap().replace("${ACCESS_URL}", &url).replace("${AUTH_TYPE}", "token");
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        let output = std::process::Command::new("sh")
            .args(["-c", &text])
            .env("PATH", path)
            .env("BINARY_DIR", folder.path().join("bin"))
            .env("CODER_AGENT_TOKEN", "the-secret-token")
            .env_remove("http_proxy")
            .output()
            .unwrap();
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{stdout}{stderr}");
        assert!(
            stdout.contains("slept 30") && stdout.ends_with(&format!("auth=token url={url}\n")),
            "{stdout}"
        );
        assert!(
            !stdout.contains("the-secret-token") && !stderr.contains("the-secret-token"),
            "{stdout}{stderr}"
        );
        let requests = server.join().unwrap();
        assert!(requests[0].starts_with("GET /bin/coder-linux-amd64 "));
        assert!(requests[1].starts_with("PATCH /api/v2/workspaceagents/me/logs "), "{}", requests[1]);
        assert!(requests[1].contains("Coder-Session-Token: the-secret-token\r\n"), "{}", requests[1]);
        assert!(
            requests[1].contains("does not run in") && requests[1].contains("\"level\":\"error\""),
            "{}",
            requests[1]
        );
        let json = requests[1].split("\r\n\r\n").nth(1).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(json).is_ok(), "{json}");
    }
}
