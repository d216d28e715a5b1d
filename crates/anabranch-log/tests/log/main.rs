//! The log as its users see it: one scenario a file, in one binary, since each would link `RocksDB` again.

mod checkpoints;
mod damage;
mod disk;
mod format_1;
mod full_disk;
mod killed;
mod one_writer;
mod permissions;
mod power_loss;
mod read_only;
mod resumed;
mod retained;
mod retained_killed;
mod salvage;
mod scripted;
mod sealed;
mod speed;
mod traced;
