//! An assembler for eBPF: instructions by name, and jumps to labels.
//!
//! Left out: backward jumps, calls between programs, and checks that the verifier makes.

/// Operations (`linux/bpf.h`), on 64 bits unless noted.
#[allow(missing_docs)] // The names are those of the operations.
pub mod op {
    pub const MOV_IMMEDIATE: u8 = 0xb7;
    pub const MOV: u8 = 0xbf;
    pub const ADD_IMMEDIATE: u8 = 0x07;
    pub const ADD: u8 = 0x0f;
    pub const SUBTRACT: u8 = 0x1f;
    pub const MULTIPLY_IMMEDIATE: u8 = 0x27;
    pub const MULTIPLY: u8 = 0x2f;
    pub const AND_IMMEDIATE: u8 = 0x57;
    pub const LEFT_SHIFT: u8 = 0x67;
    pub const RIGHT_SHIFT: u8 = 0x77;
    /// Of 8, 16 and 32 bits.
    pub const LOAD_BYTE: u8 = 0x71;
    pub const LOAD_HALF: u8 = 0x69;
    pub const LOAD_WORD: u8 = 0x61;
    pub const LOAD_LONG: u8 = 0x79;
    pub const STORE_WORD: u8 = 0x63;
    pub const STORE_LONG: u8 = 0x7b;
    pub const STORE_WORD_IMMEDIATE: u8 = 0x62;
    pub const STORE_LONG_IMMEDIATE: u8 = 0x7a;
    /// Two instructions long.
    pub const LOAD_IMMEDIATE: u8 = 0x18;
    pub const ATOMIC: u8 = 0xdb;
    pub const JUMP: u8 = 0x05;
    /// With an immediate.
    pub const JUMP_IF_EQUAL: u8 = 0x15;
    /// With an immediate, of 32 bits.
    pub const JUMP_IF_OTHER_WORD: u8 = 0x56;
    /// Any of the bits of an immediate is set.
    pub const JUMP_IF_ANY: u8 = 0x45;
    /// Above 0, signed.
    pub const JUMP_IF_POSITIVE: u8 = 0x65;
    pub const JUMP_IF_SAME: u8 = 0x1d;
    /// Unsigned, with an immediate.
    pub const JUMP_IF_MORE_THAN: u8 = 0x25;
    /// Unsigned.
    pub const JUMP_IF_ABOVE: u8 = 0x2d;
    pub const JUMP_IF_AT_MOST: u8 = 0xbd;
    pub const CALL: u8 = 0x85;
    pub const EXIT: u8 = 0x95;

    /// Immediates of [`ATOMIC`].
    pub const ATOMIC_ADD: i32 = 0x00;
    pub const ATOMIC_COMPARE_EXCHANGE: i32 = 0xf1;
    /// Source of [`LOAD_IMMEDIATE`]: a map, whose descriptor is the immediate; the address of a
    /// map's value.
    pub const PSEUDO_MAP: u8 = 1;
    pub const PSEUDO_MAP_VALUE: u8 = 2;
}

/// One instruction.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    operation: u8,
    /// Destination and source register.
    registers: (u8, u8),
    offset: i16,
    immediate: i32,
}

impl Instruction {
    /// In the byte order of this machine.
    fn encode(self) -> u64 {
        let (destination, source) = self.registers;
        let registers = match cfg!(target_endian = "big") {
            true => destination << 4 | source,
            false => source << 4 | destination,
        };
        let mut bytes = [0; 8];
        (bytes[0], bytes[1]) = (self.operation, registers);
        bytes[2..4].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.immediate.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }
}

/// Instructions, and forward jumps whose labels are not defined yet.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<(usize, &'static str)>,
}

impl Assembler {
    /// Adds an instruction. `registers` are destination and source.
    pub fn push(&mut self, operation: u8, registers: (u8, u8), offset: i16, immediate: i32) {
        self.code.push(Instruction { operation, registers, offset, immediate });
    }

    /// Adds a jump to a label.
    pub fn jump(&mut self, operation: u8, registers: (u8, u8), to: &'static str) {
        self.jump_by(operation, registers, 0, to);
    }

    /// Adds a jump that compares with an immediate, to a label.
    pub fn jump_by(
        &mut self,
        operation: u8,
        registers: (u8, u8),
        immediate: i32,
        to: &'static str,
    ) {
        self.jumps.push((self.code.len(), to));
        self.push(operation, registers, 0, immediate);
    }

    /// Loads a map into a register, as the argument of a call.
    pub fn load_map(&mut self, register: u8, descriptor: i32) {
        self.push(op::LOAD_IMMEDIATE, (register, op::PSEUDO_MAP), 0, descriptor);
        self.push(0, (0, 0), 0, 0);
    }

    /// Defines a label: earlier jumps to `name` lead here.
    pub fn label(&mut self, name: &'static str) {
        let here = self.code.len();
        let Self { code, jumps } = self;
        jumps.retain(|(at, to)| {
            if *to == name {
                code[*at].offset = (here - at - 1) as i16;
            }
            *to != name
        });
    }

    /// The assembled program.
    pub fn finish(self) -> Vec<u64> {
        debug_assert!(self.jumps.is_empty(), "jumps to nowhere: {:?}", self.jumps);
        self.code.into_iter().map(Instruction::encode).collect()
    }
}
