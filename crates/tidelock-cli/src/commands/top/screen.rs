//! The terminal: taken for the screen, read for keys, and given back as it was, whatever ends the program.

use std::io;

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyEvent, KeyEventKind},
};
use tokio::sync::mpsc;

use super::{draw, state::State};
use crate::clock::Moment;

/// The terminal, while it is ours.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: DefaultTerminal,
    keys: mpsc::UnboundedReceiver<io::Result<Event>>,
}

impl Screen {
    /// Takes the terminal. It is given back when this is dropped, and before a panic is told.
    pub(super) fn take() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let (tell, keys) = mpsc::unbounded_channel();
        // A thread, because reading a terminal blocks. It ends with the process.
        std::thread::spawn(move || while tell.send(event::read()).is_ok() {});
        Ok(Self { terminal, keys })
    }

    pub(super) fn draw(&mut self, state: &mut State) -> io::Result<()> {
        self.terminal.draw(|frame| draw::draw(frame, state, Moment::now()))?;
        Ok(())
    }

    /// The next key; nothing if the terminal has another size, which is seen when it is drawn. Cancel safe.
    pub(super) async fn key(&mut self) -> io::Result<Option<KeyEvent>> {
        loop {
            match self.keys.recv().await {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => return Ok(Some(key)),
                Some(Ok(Event::Resize(..))) => return Ok(None),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = ratatui::try_restore();
    }
}
