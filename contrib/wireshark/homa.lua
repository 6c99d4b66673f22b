-- Homa for Wireshark and tshark: IP protocol 146 (IPv4 and IPv6), Homa over UDP
-- (docs/udp-encapsulation.md), and Homa disguised as TCP by the Linux kernel module.
--
--   tshark -X lua_script:homa.lua -r capture.pcap
--   or copy it to the folder of personal Lua plugins (Help, About, Folders)
--
-- Layout: HomaModule branch main (2025 and later). What a packet says is shown as `homa pcap` shows
-- it. TCP segments are taken when flags are exactly SYN and RST and the urgent pointer is 0xb97d;
-- UDP datagrams when their header and the marks in the first packet agree, or when the preferences
-- name their port. A train of datagrams in one captured packet (GSO, GRO) is divided: each is a
-- subtree with its packets; homa.udp.train.datagrams and homa.udp.train.packets count them.
--
-- Every read is checked against the captured bytes first: nothing in a packet can raise an error.

local homa = Proto("homa", "Homa Transport Protocol")

local NAMES = {
  [0x10] = "DATA", [0x11] = "GRANT", [0x12] = "RESEND", [0x13] = "RPC_UNKNOWN", [0x14] = "BUSY",
  [0x15] = "CUTOFFS", [0x16] = "FREEZE", [0x17] = "NEED_ACK", [0x18] = "ACK",
}
-- The codes of the reason for which a request was refused.
local REASONS = {
  [1] = "overloaded", [2] = "abandoned", [3] = "response too long", [4] = "deadline passed",
}
-- Bytes that a packet of a type has at least; a RESEND may lack its priority.
local LEAST = { [0x10] = 56, [0x11] = 33, [0x12] = 36, [0x15] = 62, [0x18] = 80 }
local COMMON = 28
local DATAGRAM = 16
local ALL = 0xffffffff

local f = {
  sport = ProtoField.uint16("homa.sport", "Source port"),
  dport = ProtoField.uint16("homa.dport", "Destination port"),
  sequence = ProtoField.uint32("homa.sequence", "Sequence"),
  type = ProtoField.uint8("homa.type", "Type", base.HEX, NAMES),
  doff = ProtoField.uint8("homa.doff", "Data offset", base.HEX),
  flags = ProtoField.uint8("homa.flags", "Flags", base.HEX),
  window = ProtoField.uint16("homa.window", "Window (unused)", base.HEX),
  checksum = ProtoField.uint16("homa.checksum", "Checksum (not verified by receivers)", base.HEX),
  urgent = ProtoField.uint16("homa.urgent", "Urgent", base.HEX),
  id = ProtoField.uint64("homa.id", "RPC id", base.HEX),
  from_server = ProtoField.bool("homa.from_server", "Sent by the RPC's server"),
  priority = ProtoField.uint8("homa.priority", "Priority level of the IP header"),
  length = ProtoField.uint32("homa.length", "Message length"),
  incoming = ProtoField.uint32("homa.incoming", "Incoming"),
  client_id = ProtoField.uint64("homa.client_id", "Acknowledged RPC", base.HEX),
  server_port = ProtoField.uint16("homa.server_port", "Server port of the acknowledged RPC"),
  cutoff_version = ProtoField.uint16("homa.cutoff_version", "Cutoff version"),
  retransmit = ProtoField.uint8("homa.retransmit", "Retransmitted"),
  incast = ProtoField.uint8("homa.incast", "Incast flag (in padding; not the kernel's)"),
  idempotent = ProtoField.bool("homa.idempotent", "Idempotent request", 8, nil, 0x04),
  incast_limit = ProtoField.uint16("homa.incast_limit", "Unscheduled bytes of the response"),
  segment_offset = ProtoField.uint32("homa.segment_offset", "Segment offset (-1: see sequence)", base.HEX),
  offset = ProtoField.uint32("homa.offset", "Offset"),
  payload_length = ProtoField.uint32("homa.payload_length", "Payload length"),
  payload = ProtoField.bytes("homa.payload", "Payload"),
  grant_offset = ProtoField.uint32("homa.grant_offset", "Granted up to"),
  grant_priority = ProtoField.uint8("homa.grant_priority", "Priority of granted bytes"),
  resend_offset = ProtoField.uint32("homa.resend_offset", "Resend from"),
  resend_length = ProtoField.int32("homa.resend_length", "Resend length (-1: all that was sent)"),
  resend_priority = ProtoField.uint8("homa.resend_priority", "Priority of resent bytes"),
  unsched_cutoffs = ProtoField.uint32("homa.unsched_cutoffs", "Longest unscheduled message"),
  cutoff_cutoff_version = ProtoField.uint16("homa.cutoff.cutoff_version", "Cutoff version"),
  num_acks = ProtoField.uint16("homa.num_acks", "Acknowledgements listed"),
  summary = ProtoField.string("homa.summary", "Summary"),
  malformed = ProtoField.string("homa.malformed", "Malformed"),
  cut = ProtoField.bool("homa.cut", "Cut by the capture"),
  udp_version = ProtoField.uint8("homa.udp.version", "Version"),
  udp_flags = ProtoField.uint8("homa.udp.flags", "Flags", base.HEX),
  udp_extensions = ProtoField.uint16("homa.udp.extension_length", "Length of extensions"),
  udp_key = ProtoField.uint32("homa.udp.key_id", "Key id (0: plaintext)"),
  udp_number = ProtoField.uint64("homa.udp.number", "Packet number"),
  udp_packet_length = ProtoField.uint16("homa.udp.packet_length", "Length of the packet"),
  train_datagrams = ProtoField.uint32("homa.udp.train.datagrams", "Datagrams of the train"),
  train_packets = ProtoField.uint32("homa.udp.train.packets", "Packets of the train"),
  extension = ProtoField.uint16("homa.udp.extension", "Extension", base.DEC,
    { [1] = "limits", [2] = "remembered", [3] = "deadline", [4] = "trace context",
      [5] = "no server", [6] = "challenge", [7] = "proof", [8] = "reason", [9] = "come back" }),
  max_message = ProtoField.uint32("homa.max_message", "Longest message accepted"),
  max_unscheduled = ProtoField.uint32("homa.max_unscheduled", "Most unscheduled bytes accepted"),
  remembered = ProtoField.uint64("homa.remembered", "Nanoseconds remembered"),
  deadline = ProtoField.uint32("homa.deadline", "Microseconds that the client waits (all ones: not said)"),
  trace = ProtoField.string("homa.traceparent", "Distributed trace"),
  boot = ProtoField.uint64("homa.boot", "Boot id of the server", base.HEX),
  token = ProtoField.uint64("homa.token", "Client's name at the server", base.HEX),
  epoch = ProtoField.uint32("homa.epoch", "Epoch of the client's ids", base.HEX),
  first_call = ProtoField.uint32("homa.first_call", "First counter in progress"),
  next_call = ProtoField.uint32("homa.next_call", "Next counter"),
  reason = ProtoField.uint8("homa.reason", "Why the request was refused", base.DEC, REASONS),
  response_length = ProtoField.uint32("homa.response_length", "Length of the refused response"),
  response_limit = ProtoField.uint32("homa.response_limit", "Limit that it exceeds"),
  come_back = ProtoField.uint32("homa.come_back", "Microseconds before which not to ask again"),
}
homa.fields = {}
for _, field in pairs(f) do
  table.insert(homa.fields, field)
end

local e_malformed =
  ProtoExpert.new("homa.expert.malformed", "Malformed Homa packet", expert.group.MALFORMED, expert.severity.ERROR)
local e_retransmit =
  ProtoExpert.new("homa.expert.retransmit", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE)
local e_resend =
  ProtoExpert.new("homa.expert.resend", "Bytes are missing", expert.group.SEQUENCE, expert.severity.NOTE)
local e_unknown =
  ProtoExpert.new("homa.expert.rpc_unknown", "The peer does not know the RPC", expert.group.SEQUENCE, expert.severity.WARN)
homa.experts = { e_malformed, e_retransmit, e_resend, e_unknown }

homa.prefs.tcp = Pref.bool("Recognise Homa disguised as TCP", true, "Flags 0x06 and urgent 0xb97d")
homa.prefs.udp = Pref.bool("Recognise Homa in UDP", true, "By the datagram's header")
homa.prefs.ports = Pref.range("UDP ports that are Homa however they look", "", "", 65535)

local ip_class = Field.new("ip.dsfield")
local ip6_class = Field.new("ipv6.tclass")

-- The level that the innermost IP header asks for.
local function level()
  local values = { ip_class() }
  if #values == 0 then
    values = { ip6_class() }
  end
  local last = values[#values]
  return last and math.floor(last.value / 32)
end

-- An id without leading zeros.
local function hex(range)
  local digits = range:uint64():tohex():gsub("^0+", "")
  return "0x" .. (digits == "" and "0" or digits)
end

-- A packet under dissection: `at` in `tvb`, `length` bytes on the wire, `seen` of them captured.
local function fail(p, reason)
  p.tree:add(f.malformed, p.tvb(p.at, 0), reason):set_generated()
  p.tree:add_proto_expert_info(e_malformed, "Malformed: " .. reason)
  return "malformed: " .. reason
end

local function u8(p, at) return p.tvb(p.at + at, 1):uint() end
local function u16(p, at) return p.tvb(p.at + at, 2):uint() end
local function u32(p, at) return p.tvb(p.at + at, 4):uint() end
local function add(p, field, at, size) return p.tree:add(field, p.tvb(p.at + at, size)) end

local function ack_entry(p, at)
  local id = p.tvb(p.at + at, 8)
  -- Ids of clients are even and not 0: others name no RPC.
  if u32(p, at) == 0 and u32(p, at + 4) == 0 or u8(p, at + 7) % 2 == 1 then
    return ""
  end
  p.tree:add(f.client_id, id)
  add(p, f.server_port, at + 8, 2)
  return string.format(" %s@%d", hex(id), u16(p, at + 8))
end

-- What the datagram tells of the next request that begins in it.
local function told(said)
  said.requests = (said.requests or 0) + 1
  local text = ""
  local left = said.deadlines and said.deadlines[said.requests]
  if left and left ~= ALL then
    text = string.format(" deadline %d us", left)
  end
  local trace = said.traces and said.traces[said.requests] or ""
  return text .. (trace ~= "" and " trace " .. trace or "")
end

local function data(p, said)
  add(p, f.length, 28, 4)
  add(p, f.incoming, 32, 4)
  add(p, f.cutoff_version, 46, 2)
  local retransmit = add(p, f.retransmit, 48, 1)
  add(p, f.incast, 49, 1)
  add(p, f.segment_offset, 52, 4)
  local message, offset, from = u32(p, 28), u32(p, 52), 52
  if offset == ALL then
    offset, from = u32(p, 4), 4
  end
  p.tree:add(f.offset, p.tvb(p.at + from, 4), offset)
  local bytes = p.length - 56
  p.tree:add(f.payload_length, p.tvb(p.at + 56, 0), bytes):set_generated()
  if p.seen > 56 then
    add(p, f.payload, 56, p.seen - 56)
  end
  if bytes == 0 or message == 0 then
    return fail(p, "DATA without bytes")
  elseif offset + bytes > message then
    return fail(p, "bytes beyond the message's end")
  end
  local text = string.format("DATA %d..%d of %d incoming %d cutoffs %d",
    offset, offset + bytes, message, u32(p, 32), u16(p, 46))
  if u8(p, 48) ~= 0 then
    retransmit:add_proto_expert_info(e_retransmit)
    text = text .. " retransmit"
  end
  local ack = ack_entry(p, 36)
  if ack ~= "" then
    text = text .. " ack" .. ack
  end
  if u8(p, 49) % 2 == 1 then
    add(p, f.incast_limit, 50, 2)
    text = text .. string.format(" incast %d", u16(p, 50))
  end
  if offset == 0 and u8(p, 27) % 2 == 0 then
    text = text .. told(said)
    if said.ours and math.floor(u8(p, 49) / 4) % 2 == 1 then
      add(p, f.idempotent, 49, 1)
      text = text .. " idempotent"
    end
  end
  return text
end

local function grant(p)
  add(p, f.grant_offset, 28, 4)
  local priority = math.min(u8(p, 32), 7)
  p.tree:add(f.grant_priority, p.tvb(p.at + 32, 1), priority)
  return string.format("GRANT to %d at P%d", u32(p, 28), priority)
end

local function resend(p)
  add(p, f.resend_offset, 28, 4):add_proto_expert_info(e_resend)
  add(p, f.resend_length, 32, 4)
  local priority = 7
  if p.seen >= 37 then
    priority = math.min(u8(p, 36), 7)
    p.tree:add(f.resend_priority, p.tvb(p.at + 36, 1), priority)
  end
  local offset, length = u32(p, 28), u32(p, 32)
  local to = length == ALL and "all" or string.format("%d", offset + length)
  return string.format("RESEND %d..%s at P%d", offset, to, priority)
end

local function cutoffs(p, said)
  local list = {}
  for i = 0, 7 do
    add(p, f.unsched_cutoffs, 28 + 4 * i, 4):append_text(" at level " .. i)
    list[i + 1] = string.format("%d", u32(p, 28 + 4 * i))
  end
  add(p, f.cutoff_cutoff_version, 60, 2)
  local text = string.format("CUTOFFS %d [%s]", u16(p, 60), table.concat(list, ", "))
  if said.max_message then
    text = text .. string.format(" max_message %d max_unscheduled %d", said.max_message, said.max_unscheduled)
  end
  return text
end

local function need_ack(_, said)
  return "NEED_ACK" .. (said.challenge or "")
end

local function ack(p, said)
  add(p, f.num_acks, 28, 2)
  if said.proof then
    return "ACK" .. said.proof
  end
  local text = "ACK"
  for i = 0, math.min(u16(p, 28), 5) - 1 do
    text = text .. ack_entry(p, 30 + 10 * i)
  end
  return text
end

local function unknown(p, said)
  p.tree:add_proto_expert_info(e_unknown)
  local text = "RPC_UNKNOWN"
  if said.remembered then
    text = text .. " remembered " .. tostring(said.remembered / 1000) .. " us"
  end
  if said.no_server then
    text = text .. " no server"
  end
  return text .. (said.reason or "")
end

local function busy(_, said)
  local text = "BUSY"
  if said.come_back then
    text = text .. string.format(" come back %d us", said.come_back)
  end
  return text
end

local BODIES = {
  [0x10] = data, [0x11] = grant, [0x12] = resend, [0x13] = unknown, [0x14] = busy, [0x15] = cutoffs,
  [0x17] = need_ack, [0x18] = ack,
}

-- One packet; `said` is what its datagram's extensions say, `unclear` that DATA may be less than what
-- follows. Returns its line.
local function packet(tvb, at, length, quoted, tree, said, unclear)
  local seen = math.max(math.min(tvb:len() - at, length), 0)
  local p = { tvb = tvb, at = at, length = length, seen = seen }
  p.tree = tree:add(homa, tvb(at, seen))
  local priority = level()
  local line = ""
  if priority then
    p.tree:add(f.priority, tvb(at, 0), priority):set_generated()
    line = string.format("P%d ", priority)
  end
  local function done(text)
    p.tree:append_text(": " .. line .. text)
    p.tree:add(f.summary, tvb(at, 0), line .. text):set_generated()
    return line .. text
  end
  local function cut()
    p.tree:add(f.cut, tvb(at, 0), true):set_generated()
    return "(cut by the capture)"
  end
  if seen >= 4 then
    add(p, f.sport, 0, 2)
    add(p, f.dport, 2, 2)
  end
  if seen < COMMON then
    if quoted or length >= COMMON then
      return done(cut())
    end
    return done(fail(p, "truncated"))
  end
  add(p, f.sequence, 4, 4)
  add(p, f.type, 11, 1)
  add(p, f.doff, 12, 1)
  add(p, f.flags, 13, 1)
  add(p, f.window, 14, 2)
  add(p, f.checksum, 16, 2)
  add(p, f.urgent, 18, 2)
  add(p, f.id, 20, 8)
  p.tree:add(f.from_server, tvb(at + 27, 1), u8(p, 27) % 2 == 1):set_generated()
  local kind = u8(p, 11)
  local name, least = NAMES[kind], LEAST[kind] or COMMON
  local id = hex(tvb(at + 20, 8)) .. " "
  local text
  local short = seen < math.min(least, length) or quoted and seen < least
  if short or unclear and name == "DATA" then
    text = id .. (name or "unknown") .. " " .. cut()
  elseif not name then
    text = fail(p, "unknown type")
  elseif name == "DATA" and (u16(p, 0) == 0 or u16(p, 2) == 0) then
    text = fail(p, "DATA from or to port 0")
  elseif length < least then
    text = fail(p, "truncated")
  else
    text = (BODIES[kind] or function() return name end)(p, said)
    if not text:find("^malformed") then
      text = id .. text
    end
  end
  return done(text)
end

local function show(pinfo, text)
  if not pinfo.in_error_pkt then
    pinfo.cols.protocol = "Homa"
    pinfo.cols.info = text
  end
end

function homa.dissector(tvb, pinfo, tree)
  show(pinfo, packet(tvb, 0, tvb:reported_len(), pinfo.in_error_pkt, tree, {}))
  return tvb:len()
end

-- UDP ----------------------------------------------------------------------------------------

-- The shortest value of each extension.
local VALUES = { [1] = 8, [2] = 8, [3] = 4, [4] = 26, [6] = 16, [7] = 20, [8] = 1, [9] = 4 }

-- The context of a trace as the header `traceparent` has it; empty for what names none.
local function traceparent(range)
  local digits = range:bytes():tohex(true)
  local version, trace = digits:sub(1, 2), digits:sub(3, 34)
  local parent, flags = digits:sub(35, 50), digits:sub(51, 52)
  if version == "ff" or not trace:find("[^0]") or not parent:find("[^0]") then
    return ""
  end
  return table.concat({ version, trace, parent, flags }, "-")
end

-- The extensions between two places; nil and a reason when they break the format.
local function extensions(tvb, at, to, tree)
  local said = { ours = true }
  while at < to do
    if at + 4 > to then
      return nil
    end
    local kind, length = tvb(at, 2):uint(), tvb(at + 2, 2):uint()
    if at + 4 + length > to or length < (VALUES[kind] or 0) then
      return nil
    end
    local item = tree:add(f.extension, tvb(at, 2))
    if kind == 1 then
      item:add(f.max_message, tvb(at + 4, 4))
      item:add(f.max_unscheduled, tvb(at + 8, 4))
      if not said.max_message then
        said.max_message, said.max_unscheduled = tvb(at + 4, 4):uint(), tvb(at + 8, 4):uint()
      end
    elseif kind == 2 then
      item:add(f.remembered, tvb(at + 4, 8))
      said.remembered = said.remembered or tvb(at + 4, 8):uint64()
    elseif kind == 3 and not said.deadlines then
      said.deadlines = {}
      for entry = at + 4, at + length, 4 do
        item:add(f.deadline, tvb(entry, 4))
        table.insert(said.deadlines, tvb(entry, 4):uint())
      end
    elseif kind == 4 and not said.traces then
      said.traces = {}
      for entry = at + 4, at + 4 + length - 26, 26 do
        local context = traceparent(tvb(entry, 26))
        item:add(f.trace, tvb(entry, 26), context)
        table.insert(said.traces, context)
      end
    elseif kind == 5 then
      said.no_server = true
    elseif kind == 6 then
      local boot, remembered = tvb(at + 4, 8), tvb(at + 12, 8)
      item:add(f.boot, boot)
      item:add(f.remembered, remembered)
      said.challenge = said.challenge or string.format(" boot %s remembered %s us", hex(boot),
        tostring(remembered:uint64() / 1000))
    elseif kind == 7 then
      local token, epoch = tvb(at + 4, 8), tvb(at + 12, 4)
      local first, next_call = tvb(at + 16, 4), tvb(at + 20, 4)
      item:add(f.token, token)
      item:add(f.epoch, epoch)
      item:add(f.first_call, first)
      item:add(f.next_call, next_call)
      said.proof = said.proof or string.format(" token %s epoch 0x%x calls %d..%d", hex(token),
        epoch:uint(), first:uint(), next_call:uint())
    elseif kind == 8 then
      local code = tvb(at + 4, 1):uint()
      item:add(f.reason, tvb(at + 4, 1))
      local reason = REASONS[code] and " " .. REASONS[code]
      if code == 3 then
        if length < 9 then
          return nil
        end
        item:add(f.response_length, tvb(at + 5, 4))
        item:add(f.response_limit, tvb(at + 9, 4))
        reason = string.format(" response_length %d limit %d", tvb(at + 5, 4):uint(), tvb(at + 9, 4):uint())
      end
      said.reason = said.reason or reason
    elseif kind == 9 then
      item:add(f.come_back, tvb(at + 4, 4))
      said.come_back = said.come_back or tvb(at + 4, 4):uint()
    end
    at = at + 4 + length
  end
  return said
end

-- One datagram of `length` bytes on the wire; `how` says whether it is `unclear` where it ends, or `one`
-- of a train. Returns its line, and its packets.
local function datagram(tvb, length, how, pinfo, root)
  local seen = tvb:len()
  local tree = root:add(homa, tvb(), "Homa over UDP")
  root = how == "one" and tree or root
  local p = { tvb = tvb, at = 0, tree = tree }
  local function summary(text)
    local line = (level() and string.format("P%d ", level()) or "") .. text
    tree:add(f.summary, tvb(0, 0), line):set_generated()
    return line
  end
  local function stop(reason)
    return summary(fail(p, reason)), 1
  end
  local function cut()
    tree:add(f.cut, tvb(0, 0), true):set_generated()
    return summary("(cut by the capture)"), 1
  end
  local incomplete = pinfo.in_error_pkt or seen < length
  if seen < DATAGRAM and incomplete then
    return cut()
  elseif seen == 0 then
    return stop("truncated")
  end
  tree:add(f.udp_version, tvb(0, 1))
  if tvb(0, 1):uint() ~= 1 then
    return stop("unknown datagram version")
  elseif seen < DATAGRAM then
    return stop("truncated")
  end
  tree:add(f.udp_flags, tvb(1, 1))
  tree:add(f.udp_extensions, tvb(2, 2))
  tree:add(f.udp_key, tvb(4, 4))
  tree:add(f.udp_number, tvb(8, 8))
  local at = DATAGRAM + tvb(2, 2):uint()
  if tvb(4, 4):uint() ~= 0 and (seen >= at or not incomplete) then
    return stop("unknown key")
  elseif seen < at then
    return (incomplete and cut or stop)("truncated")
  end
  local said = extensions(tvb, DATAGRAM, at, tree)
  if not said then
    return stop("truncated")
  end
  if tvb(1, 1):uint() % 2 == 0 then
    return packet(tvb, at, length - at, pinfo.in_error_pkt, root, said, how == "unclear"), 1
  end
  local lines = {}
  while at < length and at + 2 <= seen do
    local size = tvb(at, 2):uint()
    tree:add(f.udp_packet_length, tvb(at, 2))
    at = at + 2
    if at + size > length then
      table.insert(lines, summary(fail(p, "truncated")))
      break
    end
    table.insert(lines, packet(tvb, at, size, pinfo.in_error_pkt, root, said))
    at = at + size
  end
  if at + 1 == length and at + 1 == seen then
    table.insert(lines, summary(fail(p, "truncated")))
  end
  return table.concat(lines, "; "), #lines
end

-- Trains: what the kernel of the capturing host had in one piece (GSO, GRO) is several datagrams of
-- one length, but the last may be shorter. Found as crates/homa-cli/src/commands/pcap/train.rs
-- explains, in the captured bytes as a string; places count from 0.
local SHORTEST, STUB, SINGLE_MAX, DATAGRAM_MAX, NEAR = 44, 64, 1472, 65507, 65536
local LENGTH = { [0x11] = 33, [0x12] = 37, [0x15] = 62, [0x18] = 80 }

local function be16(raw, at)
  local high, low = raw:byte(at + 1, at + 2)
  return low and 256 * high + low
end

local function be32(raw, at)
  return 65536 * be16(raw, at) + be16(raw, at + 2)
end

local function disguised(raw, at)
  return raw:byte(at + 14) == 0x06 and be16(raw, at + 18) == 0xb97d
end

-- The head of a datagram that can be nothing else; nil for what is none.
local function head(raw, at)
  local version, flags = raw:byte(at + 1, at + 2)
  if version ~= 1 or flags == nil or flags > 1 or #raw < at + DATAGRAM or be32(raw, at + 4) ~= 0 then
    return nil
  end
  local first = at + DATAGRAM + be16(raw, at + 2) + 2 * flags
  if not disguised(raw, first) or not NAMES[raw:byte(first + 12)] then
    return nil
  end
  return { first = first, flags = flags, high = be32(raw, at + 8), low = be32(raw, at + 12),
    ports = raw:sub(first + 1, first + 4) }
end

-- How far a datagram's number is from that of the train's first; nil when it does not belong to it.
local function apart(first, raw, at)
  local other = head(raw, at)
  if not other or other.ports ~= first.ports then
    return nil
  end
  local high = other.high - first.high
  if high > 2 ^ 31 then
    high = high - 2 ^ 32
  elseif high < -2 ^ 31 then
    high = high + 2 ^ 32
  end
  local distance = high * 2 ^ 32 + other.low - first.low
  return distance ~= 0 and math.abs(distance) <= NEAR and distance or nil
end

-- Where the first datagram says that it ends; nil when it does not.
local function proposed(first, raw, length)
  local at = first.first
  if first.flags == 0 then
    local kind = raw:byte(at + 12)
    at = at + (LENGTH[kind] or COMMON)
    return kind ~= 0x10 and (at == length or apart(first, raw, at)) and at or nil
  end
  while disguised(raw, at) do
    at = at + be16(raw, at - 2)
    if at == length or apart(first, raw, at) then
      return at
    end
    at = at + 2
  end
  return nil
end

-- How well datagrams of a size explain the packet: headers found, places without one, and headers
-- that count up one by one.
local function score(places, seen, length, size)
  local tried, found, in_order = 0, 0, 0
  for at = size, seen - 1, size do
    if not places[at] and seen < length and seen - at < STUB then
      break
    end
    tried = tried + 1
    if places[at] then
      found = found + 1
      in_order = in_order + (places[at] == tried and 1 or 0)
    end
  end
  if found == 0 or 2 * found < tried then
    return nil
  end
  return { found, found - tried, in_order }
end

local function better(one, other)
  for i = 1, 3 do
    if one[i] ~= other[i] then
      return one[i] > other[i]
    end
  end
  return false
end

-- The size of a train's datagrams, or nil; true when the capture kept too little to tell.
local function split(raw, length)
  local seen, first = #raw, head(raw, 0)
  if not first then
    return nil
  end
  local size = proposed(first, raw, length)
  if size then
    return size < length and size or nil
  end
  local places, sizes, last = {}, {}, math.min(seen - SHORTEST, DATAGRAM_MAX)
  local at = raw:find("\1[\0\1]..\0\0\0\0", SHORTEST + 1)
  while at do
    places[at - 1] = apart(first, raw, at - 1)
    if places[at - 1] then
      table.insert(sizes, at - 1)
      if at % 2 == 1 then
        table.insert(sizes, (at - 1) / 2)
      end
    end
    at = raw:find("\1[\0\1]..\0\0\0\0", at + 1)
  end
  table.sort(sizes)
  local best
  for _, candidate in ipairs(sizes) do
    local this = candidate >= SHORTEST and candidate <= last and score(places, seen, length, candidate)
    if this and (not best or better(this, best)) then
      best, size = this, candidate
    end
  end
  return size, not size and seen < length and length > SINGLE_MAX
end

-- What was captured as one UDP packet.
local function datagrams(tvb, pinfo, root)
  local seen, length = tvb:len(), tvb:reported_len()
  local size, unclear
  if seen > 0 and not pinfo.in_error_pkt then
    size, unclear = split(tvb:raw(0, seen), length)
  end
  if not size then
    show(pinfo, (datagram(tvb, length, unclear and "unclear", pinfo, root)))
    return seen
  end
  local tree = root:add(homa, tvb(), "Homa over UDP, a train of datagrams")
  local lines, packets = {}, 0
  for at = 0, length - 1, size do
    local line, count
    if at < seen then
      local one = tvb(at, math.min(size, seen - at)):tvb()
      line, count = datagram(one, math.min(size, length - at), "one", pinfo, tree)
    else
      line, count = (level() and string.format("P%d ", level()) or "") .. "(cut by the capture)", 1
      local missing = tree:add(homa, tvb(seen, 0), "Homa over UDP: " .. line)
      missing:add(f.cut, tvb(seen, 0), true):set_generated()
      missing:add(f.summary, tvb(seen, 0), line):set_generated()
    end
    table.insert(lines, line)
    packets = packets + count
  end
  tree:add(f.train_datagrams, tvb(0, 0), #lines):set_generated()
  tree:add(f.train_packets, tvb(0, 0), packets):set_generated()
  show(pinfo, string.format("[%d datagrams] ", #lines) .. table.concat(lines, "; "))
  return seen
end

-- True for 20 bytes of a header that carries the module's marks.
local function marked(tvb, at)
  return tvb:len() >= at + 20 and tvb(at + 13, 1):uint() == 0x06 and tvb(at + 18, 2):uint() == 0xb97d
end

-- True for a datagram that can be nothing else.
local function recognised(tvb)
  if not homa.prefs.udp or tvb:len() < DATAGRAM then
    return false
  end
  local flags = tvb(1, 1):uint()
  local at = DATAGRAM + tvb(2, 2):uint() + 2 * (flags % 2)
  return tvb(0, 1):uint() == 1 and flags <= 1 and tvb(4, 4):uint() == 0
    and marked(tvb, at) and NAMES[tvb(at + 11, 1):uint()] ~= nil
end

local function heuristic(tvb, pinfo, tree)
  if not recognised(tvb) then
    return false
  end
  datagrams(tvb, pinfo, tree)
  return true
end
homa:register_heuristic("udp", heuristic)

-- The usual port belongs to a program of the last century in Wireshark, which would be asked first.
local homa_udp = Proto("homa_udp", "Homa over UDP")
function homa_udp.dissector(tvb, pinfo, tree)
  return recognised(tvb) and datagrams(tvb, pinfo, tree) or 0
end
DissectorTable.get("udp.port"):add(4000, homa_udp)

local homa_port = Proto("homa_port", "Homa over UDP on a port of the preferences")
function homa_port.dissector(tvb, pinfo, tree)
  return datagrams(tvb, pinfo, tree)
end
local ports = ""
function homa.prefs_changed()
  local wanted = homa.prefs.ports or ""
  if wanted ~= ports then
    local by_port = DissectorTable.get("udp.port")
    if ports ~= "" then
      by_port:remove(ports, homa_port)
    end
    if wanted ~= "" then
      by_port:add(wanted, homa_port)
    end
    ports = wanted
  end
end

-- IP -----------------------------------------------------------------------------------------

local by_protocol = DissectorTable.get("ip.proto")
by_protocol:add(146, homa)

-- Wireshark's TCP shows the content of segments with RST as text without asking, so disguised
-- packets have to be found before it.
local tcp = by_protocol:get_dissector(6)
local homa_tcp = Proto("homa_tcp", "Homa disguised as TCP")
function homa_tcp.dissector(tvb, pinfo, tree)
  if homa.prefs.tcp and marked(tvb, 0) then
    return homa.dissector(tvb, pinfo, tree)
  end
  return tcp:call(tvb, pinfo, tree)
end
by_protocol:add(6, homa_tcp)
