//! What people type: `9:30AM Mon-Fri Europe/Dublin`, `2h30m`, `90`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use coder_domain::schedule::{Schedule, zones};

use crate::{duration, env};

/// The time zone of this machine.
const LOCAL_TIME: &str = "/etc/localtime";

/// The schedule of these words, in cron syntax.
pub(crate) fn autostart<S: AsRef<str>>(words: &[S]) -> anyhow::Result<String> {
    let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
    let (time, days, zone) = match *words.as_slice() {
        [time] => (time, "*", None),
        // A zone may follow the time at once.
        [time, zone] if zones::find(zone).is_some() => (time, "*", Some(zone)),
        [time, days] => (time, days, None),
        [time, days, zone] => (time, days, Some(zone)),
        _ => bail!("a schedule is a time, days and a time zone, such as 9:30AM Mon-Fri Europe/Dublin"),
    };
    let (hour, minute) = time_of_day(time)
        .with_context(|| format!("{time:?} is not a time of day: write it as 9:30AM or 14:00"))?;
    let zone = match zone {
        Some(zone) => zone.to_owned(),
        None => local_zone().unwrap_or_else(|| "UTC".to_owned()),
    };
    let text = format!("CRON_TZ={zone} {minute} {hour} * * {days}");
    Schedule::weekly(&text)?;
    Ok(text)
}

/// Hour and minute.
fn time_of_day(text: &str) -> Option<(u8, u8)> {
    let text = text.to_ascii_lowercase();
    let (clock, half) = match (text.strip_suffix("am"), text.strip_suffix("pm")) {
        (Some(clock), _) => (clock.trim_end(), Some(0)),
        (_, Some(clock)) => (clock.trim_end(), Some(12)),
        _ => (text.as_str(), None),
    };
    let (hour, minute) = match clock.split_once(':') {
        Some((hour, minute)) if minute.len() == 2 => (hour, minute),
        None if half.is_some() => (clock, "0"),
        _ => return None,
    };
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u8>().ok())?;
    let (hour, minute) = (number(hour)?, number(minute)?);
    let hour = match half {
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        None if hour < 24 => hour,
        _ => return None,
    };
    (minute < 60).then_some((hour, minute))
}

/// A duration; a plain number is minutes.
pub(super) fn minutes(text: &str) -> anyhow::Result<Duration> {
    if let Ok(minutes) = text.parse::<u32>() {
        return Ok(Duration::from_secs(u64::from(minutes) * 60));
    }
    let duration = duration::parse(text)?;
    ensure!(duration.as_secs() > 0, "{text:?} is too short: write 2h30m, or a number of minutes");
    Ok(duration)
}

/// The name of this machine's time zone: from `TZ`, or from the link in `/etc`.
pub(super) fn local_zone() -> Option<String> {
    let named = std::env::var(env::TZ).ok();
    let named = named.map(|name| name.trim_start_matches(':').to_owned()).filter(|name| !name.is_empty());
    let name = named.or_else(|| zone_of_link(&std::fs::read_link(LOCAL_TIME).ok()?))?;
    zones::find(&name).map(|_| name)
}

fn zone_of_link(target: &Path) -> Option<String> {
    let (_, name) = target.to_str()?.split_once("zoneinfo/")?;
    Some(name.trim_start_matches("posix/").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_written_in_cron_syntax() {
        for (words, cron) in [
            ("9:30AM Mon-Fri Europe/Dublin", "CRON_TZ=Europe/Dublin 30 9 * * Mon-Fri"),
            ("14:05 1,3,5 UTC", "CRON_TZ=UTC 5 14 * * 1,3,5"),
            ("12am * UTC", "CRON_TZ=UTC 0 0 * * *"),
            ("12:15PM Asia/Tokyo", "CRON_TZ=Asia/Tokyo 15 12 * * *"),
        ] {
            let words: Vec<_> = words.split(' ').collect();
            assert_eq!(autostart(&words).unwrap(), cron);
        }
        assert!(autostart(&["9:30", "Tue"]).unwrap().ends_with(" 30 9 * * Tue"));
        for words in
            ["", "9", "24:00", "13pm", "0am", "9:5", "9:60", "+9:30", "9:30 Mo UTC", "9:30 * Mars", "1 2 3 4"]
        {
            let words: Vec<_> = words.split(' ').collect();
            assert!(autostart(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_number_without_a_unit_is_minutes() {
        assert_eq!(minutes("90").unwrap(), Duration::from_secs(5400));
        assert_eq!(minutes("2h30m").unwrap(), Duration::from_secs(9000));
        assert!(minutes("soon").is_err() && minutes("-5").is_err());
    }

    #[test]
    fn the_zone_of_the_machine_is_the_target_of_a_link() {
        let zone = |target: &str| zone_of_link(Path::new(target));
        assert_eq!(zone("/usr/share/zoneinfo/Europe/Berlin").as_deref(), Some("Europe/Berlin"));
        assert_eq!(zone("../usr/share/zoneinfo/posix/UTC").as_deref(), Some("UTC"));
        assert_eq!(zone("/somewhere/else"), None);
    }
}
