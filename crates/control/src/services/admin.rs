//! Servers of other crates that listen on sockets of their own: the admin interface.

use std::io;
use std::os::fd::BorrowedFd;
use std::thread::JoinHandle;

use offramp_net::Address;
use offramp_process::Finding;
use offramp_process::inherited::{Label, Offer, Purpose, Unwanted};

use crate::data_plane::DataPlane;
use crate::service::{Service, Way};

/// Something with a listening socket of its own that the new process takes over, too. It ends when dropped.
pub trait Carried: Send {
    /// The address as configured.
    fn address(&self) -> Address;
    /// Set where the service manager has the socket, too.
    fn is_foreign(&self) -> bool;
    /// Its socket.
    fn socket(&self) -> BorrowedFd<'_>;
    /// Accepts nothing more, and leaves the socket to the new process. What is being answered may finish: that is over
    /// when the thread has ended.
    fn leave(self: Box<Self>) -> Option<JoinHandle<()>>;
    /// Like [`Self::leave`], and takes the socket away: the new process does not want it.
    fn close(self: Box<Self>) -> Option<JoinHandle<()>>;
}

/// All of them.
#[derive(Default)]
pub(crate) struct CarriedServers {
    running: Vec<Box<dyn Carried>>,
    /// The threads of those that have ended, which may still answer a client.
    endings: Vec<JoinHandle<()>>,
}

impl CarriedServers {
    /// Keeps one until the process ends, or another process takes its socket.
    pub(crate) fn carry(&mut self, carried: Box<dyn Carried>) {
        self.running.push(carried);
    }

    /// Waits until all have answered: each is over soon. One that panicked has logged that itself.
    pub(crate) fn join(&mut self) {
        for ending in self.endings.drain(..) {
            let _ = ending.join();
        }
    }
}

impl Service for CarriedServers {
    /// Their settings keep their value until a start.
    type Wanted<'a> = ();
    type Step = ();

    fn prepare(&self, (): (), _: Way) -> Result<(), Vec<Finding>> {
        Ok(())
    }

    fn commit(&mut self, (): (), _: &DataPlane) {}

    fn offer(&self, offer: &mut Offer) -> io::Result<()> {
        for carried in &self.running {
            let (name, address) = (String::new(), carried.address().to_string());
            let label = Label { purpose: Purpose::Carried, name, address, foreign: carried.is_foreign() };
            offer.add(label, [carried.socket()])?;
        }
        Ok(())
    }

    async fn hand_over(&mut self, unwanted: &mut Unwanted, _: &DataPlane) {
        for carried in self.running.drain(..) {
            self.endings.extend(if unwanted.next_is_left() { carried.close() } else { carried.leave() });
        }
    }

    fn stop(&mut self) {
        self.endings.extend(self.running.drain(..).filter_map(Carried::close));
    }
}
