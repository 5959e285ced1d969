-- One exchange of the shared book, atomic, in one round trip. The counterpart, decision for decision, of core/book.py and
-- core/pot.py; tests/property/test_leases.py compares the two. KEYS[1]: the book. ARGV: message (MessagePack), seconds
-- that a member lives after its last exchange, a generation in case the book is new.
local SLOT_S, WINDOW_SLOTS, NEED_S, TURN_S, SETTLE_S = 0.5, 121, 0.5, 2.0, 1.0
local REPORTS_MAX, MEMBERS_MAX, RECALLS_MAX = 128, 256, 256
local DAY_S, POT_TTL_MS, BUDGET_TTL_MS, REPLY_TTL_MS, BOOK_TTL_MS = 86400, 180000, 32 * 86400000, 3600000, 40 * 86400000
local floor, max, min = math.floor, math.max, math.min

local base, member_s = KEYS[1], tonumber(ARGV[2])
local message = cmsgpack.unpack(ARGV[1])
local member, serial, generation, delay_slots, reports = message[1], message[2], message[3], message[4], message[5]
local clock = redis.call('TIME')
local now_s = tonumber(clock[1]) + tonumber(clock[2]) / 1000000

-- the calendar

local function civil_month(day)
  local shifted = day + 719468
  local era = floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local year_of_era = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local of_year = of_era - (365 * year_of_era + floor(year_of_era / 4) - floor(year_of_era / 100))
  local march_month = floor((5 * of_year + 2) / 153)
  local month = march_month < 10 and march_month + 3 or march_month - 9
  return year_of_era + era * 400 + (month <= 2 and 1 or 0), month
end

local function first_day(year, month)
  if month <= 2 then year = year - 1 end
  local era = floor(year / 400)
  local year_of_era = year - era * 400
  local of_year = floor((153 * (month > 2 and month - 3 or month + 9) + 2) / 5)
  return era * 146097 + year_of_era * 365 + floor(year_of_era / 4) - floor(year_of_era / 100) + of_year - 719468
end

local function period_of(kind)
  local day = floor(now_s / DAY_S)
  if kind == 'day' then return day, (day + 1) * DAY_S - now_s end
  if kind == 'month' then
    local year, month = civil_month(day)
    return first_day(year, month), first_day(year + floor(month / 12), month % 12 + 1) * DAY_S - now_s
  end
  return 0, 0
end

-- the book and its members

local packed = redis.call('GET', base)
local book = packed and cmsgpack.unpack(packed) or {generation = ARGV[3], settles_at_s = 0, members = {}}
local living = 0
for name, known in pairs(book.members) do
  if now_s >= known.until_s then book.members[name] = nil else living = living + 1 end
end
local last = redis.call('GET', base .. ':reply:' .. member)
if last then
  local answered = cmsgpack.unpack(last)
  if serial == answered[1] and answered[2] == book.generation then
    if book.members[member] then
      book.members[member].until_s = now_s + member_s
      redis.call('SET', base, cmsgpack.pack(book), 'PX', BOOK_TTL_MS)
    end
    return answered[3]
  end
  if serial < answered[1] then
    return redis.error_reply('OVERTAKEN exchange ' .. serial .. ' was overtaken by ' .. answered[1])
  end
end
if not book.members[member] then
  if living >= MEMBERS_MAX then
    return redis.error_reply('FULL ' .. MEMBERS_MAX .. ' processes share already, and no more can')
  end
  living = living + 1
end
if #reports > REPORTS_MAX then
  return redis.error_reply('TOOMANY ' .. #reports .. ' reports; at most ' .. REPORTS_MAX .. ' are taken')
end
if generation ~= '' and generation ~= book.generation and book.settles_at_s == 0 then
  book.settles_at_s = now_s + SETTLE_S
end
local is_settling = now_s < book.settles_at_s
book.members[member] = {until_s = now_s + member_s}
redis.call('SET', base, cmsgpack.pack(book), 'PX', BOOK_TTL_MS)

-- one limit

local function unmet(lease)
  if now_s >= lease.need_until_s then return 0 end
  return max(0, lease.need - lease.held)
end

local function use(pot, amount, slot)
  if pot.kind == 'slots' then return end
  if pot.kind ~= 'rate' then
    pot.used = max(0, pot.used + amount)
  elseif amount ~= 0 then
    local before = pot.slots[slot] or 0
    local after = max(0, before + amount)
    pot.used = pot.used + after - before
    pot.slots[slot] = after
  end
end

local function held_of(pot)
  local sum = 0
  for _, lease in pairs(pot.leases) do sum = sum + lease.held end
  return sum
end

local function load_pot(key, kind, amount)
  local text = redis.call('GET', key)
  local pot = text and cmsgpack.unpack(text)
  if not pot or pot.kind ~= kind then
    return {kind = kind, amount = amount, used = 0, period = 0, slots = {}, leases = {}}
  end
  local slots = {}
  for index = 1, #pot.slots, 2 do slots[pot.slots[index]] = pot.slots[index + 1] end
  pot.slots = slots
  return pot
end

local function save_pot(key, pot)
  local flat, slots = {}, pot.slots
  for slot, amount in pairs(slots) do
    flat[#flat + 1] = slot
    flat[#flat + 1] = amount
  end
  pot.slots = flat
  local is_budget = pot.kind == 'day' or pot.kind == 'month'
  redis.call('SET', key, cmsgpack.pack(pot), 'PX', is_budget and BUDGET_TTL_MS or POT_TTL_MS)
  pot.slots = slots
end

local function pass_time(pot)
  if pot.kind == 'rate' then
    local oldest = floor(now_s / SLOT_S) - WINDOW_SLOTS
    for slot, amount in pairs(pot.slots) do
      if slot <= oldest then
        pot.used = pot.used - amount
        pot.slots[slot] = nil
      end
    end
  end
  local period, resets_in_s = period_of(pot.kind)
  if period ~= pot.period then
    pot.period = period
    pot.used = 0
  end
  return resets_in_s
end

local function bury(pot)
  for name, lease in pairs(pot.leases) do
    if not book.members[name] then
      pot.leases[name] = nil
      if pot.kind == 'rate' then
        use(pot, lease.held, floor(now_s / SLOT_S))
      elseif (lease.open_period or 0) == pot.period then
        use(pot, -(lease.open or 0), 0)
      end
    end
  end
end

local function record(pot, report)
  local lease = pot.leases[member]
  local is_stranger = lease == nil
  if is_stranger then
    lease = {held = 0, need = 0, need_until_s = 0, since_s = 0}
    pot.leases[member] = lease
  end
  if lease.amount ~= report[3] then
    lease.amount = report[3]
    pot.amount = report[3]
  end
  if (pot.kind == 'day' or pot.kind == 'month') and report[11] == pot.period then
    if is_stranger and generation == book.generation then pot.used = pot.used + max(0, report[13] or 0) end
    pot.used = max(pot.used, report[9], is_stranger and report[10] or 0)
  end
  local present = floor(now_s / SLOT_S)
  for _, one in ipairs(report[8]) do
    local age_slots = max(0, one[1] + delay_slots)
    if age_slots < WINDOW_SLOTS or pot.kind ~= 'rate' then use(pot, one[2], present - age_slots) end
  end
  local was_unmet = unmet(lease) > 0
  lease.held = max(0, report[4])
  lease.need = max(0, report[5])
  lease.need_until_s = now_s + NEED_S
  lease.open, lease.open_period = max(0, report[12] or 0), report[11]
  if not was_unmet then lease.since_s = now_s end
  return lease
end

local function count(of)
  local sum = 0
  for _ in pairs(of) do sum = sum + 1 end
  return sum
end

local function decide_purse(pot, lease, least, want)
  local all, earlier = 0, 0
  for name, one in pairs(pot.leases) do
    if name ~= member then
      local missing = unmet(one)
      all = all + missing
      if one.since_s < lease.since_s or (one.since_s == lease.since_s and name < member) then
        earlier = earlier + missing
      end
    end
  end
  local short, free, grant = unmet(lease), pot.amount - pot.used - held_of(pot), 0
  if not is_settling then grant = min(short, max(0, free - earlier)) end
  if lease.held + grant < least then grant = 0 end
  if grant > 0 then lease.since_s = now_s end
  local left = free - grant - all
  if not is_settling and grant == short and left > 0 then
    grant = grant + max(0, min(want - lease.held - grant, floor(left / (1 + count(pot.leases)))))
  end
  if all <= free - grant then return grant, pot.amount end
  return grant, (short > 0 and earlier == 0) and lease.need or 0
end

local function fair_shares(amount, demands)
  local entries, shares, left = {}, {}, max(0, amount)
  for name, demand in pairs(demands) do entries[#entries + 1] = {demand, name} end
  table.sort(entries, function(a, b)
    if a[1] ~= b[1] then return a[1] < b[1] end
    return a[2] < b[2]
  end)
  local first = 1
  while first <= #entries and entries[first][1] <= floor(left / (#entries - first + 1)) do
    shares[entries[first][2]] = entries[first][1]
    left = left - entries[first][1]
    first = first + 1
  end
  local open = {}
  for index = first, #entries do open[#open + 1] = entries[index][2] end
  table.sort(open)
  if #open > 0 then
    local share, turn = floor(left / #open), floor(now_s / TURN_S)
    local rest = left - share * #open
    for index, name in ipairs(open) do
      shares[name] = share + (((index - 1 - turn) % #open) < rest and 1 or 0)
    end
  end
  return shares
end

local function decide_slots(pot, lease, _, want)
  local demands = {}
  for name, one in pairs(pot.leases) do demands[name] = one.held + unmet(one) end
  demands[member] = lease.need
  local shares, all = fair_shares(pot.amount, demands), 0
  for name, one in pairs(pot.leases) do
    if name ~= member and unmet(one) > 0 then all = all + max(0, shares[name] - one.held) end
  end
  local free, grant = max(0, pot.amount - held_of(pot)), 0
  if not is_settling and lease.need > lease.held then
    grant = max(0, min(shares[member] - lease.held, free))
  elseif not is_settling then
    local left = free - all
    if left > 0 then grant = max(0, min(want - lease.held, floor(left / (1 + count(pot.leases))))) end
  end
  return grant, all > free - grant and shares[member] or pot.amount
end

local function wait_s(pot, short, resets_in_s)
  if pot.kind ~= 'rate' then return resets_in_s end
  local slots, missing = {}, short - (pot.amount - pot.used - held_of(pot))
  for slot in pairs(pot.slots) do slots[#slots + 1] = slot end
  table.sort(slots)
  for _, slot in ipairs(slots) do
    missing = missing - pot.slots[slot]
    if missing <= 0 then return (slot + WINDOW_SLOTS) * SLOT_S - now_s end
  end
  return 60
end

local function last_reset_s(pot)
  local newest
  for slot in pairs(pot.slots) do newest = max(newest or slot, slot) end
  return newest and (newest + WINDOW_SLOTS) * SLOT_S - now_s or 0
end

local function answer(report)
  local limit, key = report[1], base .. ':limit:' .. report[1]
  local pot = load_pot(key, report[2], report[3])
  local resets_in_s = pass_time(pot)
  bury(pot)
  local lease = record(pot, report)
  local decide = pot.kind == 'slots' and decide_slots or decide_purse
  local grant, keep = decide(pot, lease, report[6], report[7])
  lease.held = lease.held + grant
  local is_waited_for = false
  for _, one in pairs(pot.leases) do is_waited_for = is_waited_for or unmet(one) > 0 end
  if is_waited_for then
    redis.call('ZADD', base .. ':waited', now_s + NEED_S, limit)
  else
    redis.call('ZREM', base .. ':waited', limit)
  end
  save_pot(key, pot)
  local held, short = held_of(pot), unmet(lease)
  return {
    limit, grant, keep, pot.amount - pot.used - held, pot.used, held - lease.held,
    short > 0 and wait_s(pot, short, resets_in_s) or 0,
    pot.kind == 'rate' and last_reset_s(pot) or resets_in_s, pot.period,
  }
end

local answers = {}
for index, report in ipairs(reports) do answers[index] = answer(report) end
redis.call('ZREMRANGEBYSCORE', base .. ':waited', '-inf', now_s)
local recalls = redis.call('ZRANGE', base .. ':waited', 0, RECALLS_MAX - 1)
local reply = cmsgpack.pack({book.generation, living, is_settling, answers, recalls})
redis.call('SET', base .. ':reply:' .. member, cmsgpack.pack({serial, book.generation, reply}), 'PX', REPLY_TTL_MS)
return reply
