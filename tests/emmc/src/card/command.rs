//! The command line.
use super::data::Transfer;
use super::erase::Sequence;
use super::fault::{due, Effect};
use super::registers::{ocr, voltage_ok};
use super::{bits, Card, Response, State};
use std::time::Duration;

/// CMD0 with this argument resets as well (GO_PRE_IDLE_STATE).
const GO_PRE_IDLE: u32 = 0xf0f0_f0f0;
/// CMD5: bit 15 set = sleep, clear = awake.
const SLEEP: u32 = 1 << 15;
/// CMD23 bit 31: reliable write.
const RELIABLE: u32 = 1 << 31;

impl Card {
    /// Executes a command that arrives at `now`.
    pub fn command(&mut self, now: Duration, command: u8, argument: u32) -> Response {
        if !self.powered {
            return Response::None;
        }
        self.tick(now);
        if self.outage_at(now, command, argument) {
            return Response::None;
        }
        let token = self.log.begin(now, command, argument);
        let effect = due(&mut self.faults, command);
        let response = match effect {
            Some(Effect::Deaf) => Response::None,
            Some(Effect::Refuse(bits)) => {
                self.errors |= bits;
                self.r1()
            }
            _ => {
                if let Some(Effect::Response(bits)) = effect {
                    self.errors |= bits;
                }
                // data that follow CMD17…CMD25 are booked on them; CMD12 and CMD13 in between
                // have no time of their own
                if !matches!(command, 12 | 13) {
                    self.token = Some(token);
                }
                self.execute(now, command, argument)
            }
        };
        let response = match effect {
            Some(Effect::NoResponse) => Response::None,
            Some(Effect::Later(bits)) => {
                self.errors |= bits;
                response
            }
            _ => response,
        };
        // a command that was being carried out when the power failed is not answered
        let response = match self.powered {
            true => response,
            false => Response::None,
        };
        self.log.respond(token, response);
        response
    }

    /// The device status; its error bits are cleared by being read.
    pub(super) fn r1(&mut self) -> Response {
        let ready = match self.in_flight {
            None => bits::READY_FOR_DATA,
            Some(_) => 0,
        };
        let state = (self.state as u32) << bits::STATE_SHIFT;
        Response::R1(std::mem::take(&mut self.errors) | state | ready)
    }

    fn r1_then(&mut self, state: State) -> Response {
        let response = self.r1();
        self.state = state;
        response
    }

    fn illegal(&mut self) -> Response {
        self.errors |= bits::ILLEGAL_COMMAND;
        self.log.counters.illegal += 1;
        Response::None
    }

    fn execute(&mut self, now: Duration, command: u8, argument: u32) -> Response {
        use State::*;
        let mine = (argument >> 16) as u16 == self.rca;
        // JESD84-B51 §6.6.10: any other command breaks an erase sequence
        if !matches!(command, 13 | 35 | 36 | 38) && self.sequence != Sequence::None {
            self.sequence = Sequence::None;
            self.errors |= bits::ERASE_RESET;
        }
        // a busy card takes the next data block, but of commands only these
        if self.in_flight.is_some() && !matches!(command, 0 | 7 | 12 | 13) {
            return self.illegal();
        }
        let count = match command {
            23 => None,
            _ => self.block_count.take(),
        };
        match (command, self.state) {
            (0, _) => self.go_idle(argument),
            (1, Idle) => {
                if voltage_ok(argument) {
                    self.state = Ready;
                }
                Response::R3(ocr(self.sectors()))
            }
            (2, Ready) => {
                self.state = Ident;
                Response::R2(self.cid.to_bytes())
            }
            (3, Ident) => {
                self.rca = (argument >> 16) as u16;
                self.r1_then(Stby)
            }
            (4, Stby) => Response::None,
            (5, Stby) if mine && argument & SLEEP != 0 => self.r1_then(Slp),
            (5, Slp) if mine && argument & SLEEP == 0 => self.r1_then(Stby),
            (6, Tran) => self.switch(now, argument),
            (7, Stby) if mine => self.r1_then(Tran),
            (7, Dis) if mine => self.r1_then(Prg),
            (7, Prg) if !mine => {
                self.state = Dis;
                Response::None
            }
            (7, Tran | Data) if !mine => {
                self.state = Stby;
                self.transfer = Transfer::None;
                Response::None
            }
            (8, Tran) => {
                self.transfer = Transfer::ExtCsd;
                self.r1_then(Data)
            }
            (9, Stby) if mine => Response::R2(self.csd_bytes()),
            (10, Stby) if mine => Response::R2(self.cid.to_bytes()),
            (12, Data | Rcv | Prg) => {
                self.transfer = Transfer::None;
                let next = if self.in_flight.is_some() { Prg } else { Tran };
                self.r1_then(next)
            }
            // a stop right behind the last block of a counted transfer
            (12, Tran) => self.r1(),
            (13, Stby | Tran | Data | Rcv | Prg | Dis) if mine => self.r1(),
            (16, Tran) => {
                if argument != crate::store::SECTOR as u32 {
                    self.errors |= bits::BLOCK_LEN_ERROR;
                }
                self.r1()
            }
            (17 | 18 | 24 | 25, Tran) => self.begin_transfer(command, argument, count),
            (23, Tran) => {
                self.block_count = Some((argument & 0xffff, argument & RELIABLE != 0));
                self.r1()
            }
            (28, Tran) => self.set_protection(now, argument, true),
            (29, Tran) => self.set_protection(now, argument, false),
            (30, Tran) => self.send_protection(argument),
            (35, Tran) => self.erase_start(argument),
            (36, Tran) => self.erase_end(argument),
            (38, Tran) => self.erase(now, argument),
            _ => self.illegal(),
        }
    }

    /// CMD0. What was under way ends and the cache is written back first: the standard lets a
    /// card lose both, but power loss is the test for that.
    fn go_idle(&mut self, argument: u32) -> Response {
        if argument == 0 || argument == GO_PRE_IDLE {
            self.finish();
            if let Err(e) = self.write_back(usize::MAX) {
                ::log::error!("medium: {e}");
            }
            self.reset_registers();
        }
        Response::None
    }
}
