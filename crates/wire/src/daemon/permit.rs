//! The permit that a call needs to be worked on.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One of the permits of a connection for calls at work. A call that only waits releases it.
#[derive(Debug)]
pub(crate) struct CallPermit {
    semaphore: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl CallPermit {
    /// The permit of a stream that was just accepted.
    pub(crate) const fn new(semaphore: Arc<Semaphore>, permit: OwnedSemaphorePermit) -> Self {
        Self { semaphore, permit: Some(permit) }
    }

    /// The only permit of a stream that shares its connection with no other.
    pub(crate) fn unshared() -> Self {
        Self { semaphore: Arc::new(Semaphore::new(1)), permit: None }
    }

    /// Waits for a permit, unless it is held already.
    pub(crate) async fn acquire(&mut self) {
        if self.permit.is_none() {
            // The semaphore is never closed.
            self.permit = Arc::clone(&self.semaphore).acquire_owned().await.ok();
        }
    }

    /// Gives the permit back.
    pub(crate) fn release(&mut self) {
        self.permit = None;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn who_released_its_permit_waits_for_another() {
        let semaphore = Arc::new(Semaphore::new(1));
        let granted = Arc::clone(&semaphore).acquire_owned().await.unwrap();
        let mut first = CallPermit::new(Arc::clone(&semaphore), granted);
        first.acquire().now_or_never().expect("it has one");
        first.release();
        let mut second = CallPermit { semaphore, permit: None };
        second.acquire().now_or_never().expect("the permit is free");
        assert!(first.acquire().now_or_never().is_none());
        second.release();
        first.acquire().now_or_never().expect("the permit is free again");
    }
}
