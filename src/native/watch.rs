//! Keeps the list of loaded modules up to date while a session runs.
//!
//! Knows: that the handler may meet code that was loaded after the start, and
//! must not look for it itself: the dynamic linker has a lock, and tables take
//! memory. Must not know: what a stack is.
//!
//! The handler asks and goes on; a thread of ours looks and gets new tables
//! ready; the handler takes them at its next sample and gives the old ones back
//! for the thread to free.

use super::modules::{Catalogue, Module};
use super::unwind::Unwinder;
use crate::room;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// What has changed, ready for use.
pub struct News {
    /// Tables of all modules that are loaded now.
    pub unwinder: Unwinder,
    /// Modules that were not there before, by ascending number.
    pub added: Vec<Module>,
    /// Whether they were used.
    used: bool,
}

/// The handler's end.
#[derive(Default)]
pub struct Watch {
    asked: AtomicBool,
    /// News that the handler has not taken yet.
    ready: AtomicPtr<News>,
    /// News that the handler is through with.
    spent: AtomicPtr<News>,
}

impl Watch {
    /// Asks for a look at the modules; the thread is to be woken.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// News, if there are any. Allocates and frees nothing.
    pub fn take(&self) -> Option<Box<News>> {
        // The last ones must have been freed, or there would be no place to put
        // these when they are spent.
        if !self.spent.load(Ordering::Acquire).is_null() {
            return None;
        }
        let news = self.ready.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: made by Box::into_raw in `attend`, and taken by us alone.
        (!news.is_null()).then(|| unsafe { Box::from_raw(news) })
    }

    /// Gives news back that were used.
    pub fn give_back(&self, mut news: Box<News>) {
        news.used = true;
        self.spent.store(Box::into_raw(news), Ordering::Release);
    }

    /// Puts news back that could not be used yet, unless there are newer ones
    /// on top of them.
    pub fn put_back(&self, news: Box<News>) {
        let news = Box::into_raw(news);
        let empty = ptr::null_mut();
        let put = self
            .ready
            .compare_exchange(empty, news, Ordering::AcqRel, Ordering::Acquire);
        if put.is_err() {
            // Newer ones name the same modules again.
            self.spent.store(news, Ordering::Release);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for news in [&self.ready, &self.spent] {
            let news = news.swap(ptr::null_mut(), Ordering::AcqRel);
            if !news.is_null() {
                // SAFETY: made by Box::into_raw, and nobody else has it.
                drop(unsafe { Box::from_raw(news) });
            }
        }
    }
}

/// The thread's end.
pub struct Watcher {
    watch: Arc<Watch>,
    catalogue: Catalogue,
    /// Modules up to this number are known to the handler for certain.
    told: usize,
}

impl Watcher {
    /// Starts from the modules that the session was started with.
    pub fn new(watch: Arc<Watch>, catalogue: Catalogue) -> Watcher {
        let told = catalogue.all().len();
        Watcher {
            watch,
            catalogue,
            told,
        }
    }

    /// All modules that were met so far, by number.
    pub fn modules(&self) -> &[Module] {
        self.catalogue.all()
    }

    /// Does what was asked for since the last call, and cleans up.
    pub fn attend(&mut self) {
        let spent = self.watch.spent.swap(ptr::null_mut(), Ordering::AcqRel);
        if !spent.is_null() {
            // SAFETY: made by Box::into_raw below; the handler has let go of it.
            let spent = unsafe { Box::from_raw(spent) };
            if let (true, Some(last)) = (spent.used, spent.added.last()) {
                self.told = last.number as usize + 1;
            }
        }
        if !self.watch.asked.load(Ordering::Acquire) || room::find(Catalogue::memory()).is_err() {
            // Without memory nothing is looked at until there is some.
            return;
        }
        self.watch.asked.store(false, Ordering::Release);
        if !self.catalogue.refresh() {
            return;
        }
        let news = Box::new(News {
            unwinder: Unwinder::new(self.catalogue.loaded()),
            added: self.catalogue.all()[self.told..].to_vec(),
            used: false,
        });
        let older = self.watch.ready.swap(Box::into_raw(news), Ordering::AcqRel);
        if !older.is_null() {
            // SAFETY: the handler has not taken it, and cannot any more.
            drop(unsafe { Box::from_raw(older) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_loaded_later_is_told_of_once() {
        let watch = Arc::new(Watch::default());
        let mut watcher = Watcher::new(watch.clone(), Catalogue::new());
        watcher.attend();
        assert!(watch.take().is_none(), "nobody asked");
        watch.ask();
        watcher.attend();
        assert!(watch.take().is_none(), "nothing has changed");

        // SAFETY: a library of the C library's own, without initialisers.
        let library = unsafe { libc::dlopen(c"libresolv.so.2".as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        watch.ask();
        watcher.attend();
        let news = watch.take().expect("a library was loaded");
        let added = |news: &News| -> Vec<String> {
            news.added
                .iter()
                .map(|module| module.path.clone())
                .collect()
        };
        assert!(
            added(&news).iter().any(|path| path.contains("libresolv")),
            "{:?}",
            added(&news)
        );
        let code = news.added[0].range.start;
        assert_eq!(news.unwinder.module_of(code), Some(news.added[0].number));

        // News that could not be used come again, with what is newer.
        watch.put_back(news);
        let news = watch.take().expect("put back");
        watch.give_back(news);
        watch.ask();
        watcher.attend();
        assert!(watch.take().is_none(), "told already");
    }
}
