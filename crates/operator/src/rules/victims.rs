//! Which daemons leave when a pool shrinks.

/// What a daemon is doing, as the server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// The server does not know it, or has lost it.
    Offline,
    Idle,
    Busy,
    /// Takes no further job.
    Draining,
}

/// A pod of the pool that is not being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub name: String,
    /// Whether its containers have been started.
    pub is_running: bool,
    pub is_ready: bool,
    pub activity: Activity,
    /// Seconds since 1970; younger pods leave first.
    pub created_at: i64,
}

/// What to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Pods whose daemons are drained, and which then leave.
    pub victims: Vec<String>,
    /// Why fewer leave than wanted.
    pub blocked: Option<&'static str>,
}

/// Chooses the pods that leave so that `target` remain. Busy daemons never leave.
///
/// A ReplicaSet removes pods in this order: without a node, pending, not ready, then by deletion cost. A busy daemon whose
/// pod is not ready would therefore go before every ready victim, so no ready victim is chosen then.
#[must_use]
pub fn choose(pods: &[Pod], target: usize) -> Removal {
    let surplus = pods.len().saturating_sub(target);
    let rank = |pod: &Pod| (pod.is_running, pod.is_ready);
    // With an equal rank the deletion cost decides.
    let first_busy = pods.iter().filter(|pod| pod.activity == Activity::Busy).map(rank).min();
    let may_leave =
        |pod: &&Pod| pod.activity != Activity::Busy && first_busy.is_none_or(|busy| rank(pod) <= busy);
    let exposed = first_busy.is_some_and(|busy| busy != (true, true));
    let mut candidates: Vec<&Pod> = pods.iter().filter(may_leave).collect();
    candidates.sort_by_key(|pod| {
        let activity = match pod.activity {
            Activity::Draining => 0,
            Activity::Offline => 1,
            Activity::Idle | Activity::Busy => 2,
        };
        (pod.is_running, pod.is_ready, activity, std::cmp::Reverse(pod.created_at), pod.name.clone())
    });
    let victims: Vec<String> = candidates.into_iter().take(surplus).map(|pod| pod.name.clone()).collect();
    let blocked = (victims.len() < surplus).then_some(if exposed {
        "a busy daemon's pod is not ready and would be removed first"
    } else {
        "the other daemons are busy"
    });
    Removal { victims, blocked }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(name: &str, activity: Activity, is_ready: bool, created_at: i64) -> Pod {
        Pod { name: name.to_owned(), is_running: true, is_ready, activity, created_at }
    }

    #[test]
    fn idle_daemons_leave_before_busy_ones_and_young_before_old() {
        let pods = [
            pod("busy", Activity::Busy, true, 9),
            pod("old", Activity::Idle, true, 1),
            pod("young", Activity::Idle, true, 2),
        ];
        assert_eq!(choose(&pods, 2).victims, ["young"]);
        assert_eq!(choose(&pods, 1).victims, ["young", "old"]);
        let all = choose(&pods, 0);
        assert_eq!(all.victims, ["young", "old"]);
        assert_eq!(all.blocked, Some("the other daemons are busy"));
    }

    #[test]
    fn pods_that_do_not_run_leave_first() {
        let mut pending = pod("pending", Activity::Offline, false, 5);
        pending.is_running = false;
        let pods =
            [pod("idle", Activity::Idle, true, 9), pod("starting", Activity::Offline, false, 5), pending];
        assert_eq!(choose(&pods, 0).victims, ["pending", "starting", "idle"]);
    }

    #[test]
    fn a_busy_pod_that_is_not_ready_blocks_ready_victims() {
        let pods = [
            pod("busy", Activity::Busy, false, 1),
            pod("idle", Activity::Idle, true, 2),
            pod("starting", Activity::Offline, false, 3),
        ];
        let removal = choose(&pods, 0);
        assert_eq!(removal.victims, ["starting"]);
        assert!(removal.blocked.is_some());
    }

    fn activity() -> impl Strategy<Value = Activity> {
        prop_oneof![
            Just(Activity::Offline),
            Just(Activity::Idle),
            Just(Activity::Busy),
            Just(Activity::Draining)
        ]
    }

    proptest! {
        #[test]
        fn no_busy_daemon_is_ever_a_victim(
            kinds in proptest::collection::vec((activity(), any::<bool>(), any::<bool>(), 0_i64..100), 0..12),
            target in 0_usize..14,
        ) {
            let pods: Vec<Pod> = kinds.into_iter().enumerate().map(|(index, (activity, is_running, is_ready, created_at))| Pod {
                name: format!("pod-{index}"), is_running, is_ready, activity, created_at,
            }).collect();
            let removal = choose(&pods, target);
            prop_assert!(removal.victims.len() <= pods.len().saturating_sub(target));
            // What a ReplicaSet removes when the victims have the lowest deletion cost.
            let rank = |pod: &&Pod| (pod.is_running, pod.is_ready, if removal.victims.contains(&pod.name) { -1 } else { 1 });
            let mut order: Vec<&Pod> = pods.iter().collect();
            order.sort_by_key(rank);
            for pod in order.iter().take(removal.victims.len()) {
                prop_assert!(pod.activity != Activity::Busy, "{:?}", pod);
            }
            for name in &removal.victims {
                let pod = pods.iter().find(|pod| &pod.name == name).unwrap();
                prop_assert_ne!(pod.activity, Activity::Busy);
            }
        }
    }
}
