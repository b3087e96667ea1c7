// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "unit/transport/shm/ranks.hpp"

namespace farandole {
namespace {

constexpr Rank kPeer[] = {Rank{1}};
constexpr auto kPatience = std::chrono::seconds(30);

Error failure(ShmTransport& transport, Rank peer, int deadline_ms = 20) {
  const auto deadline = Deadline::after(std::chrono::milliseconds(deadline_ms));
  const auto connected = transport.connect(std::span(&peer, 1), deadline);
  EXPECT_FALSE(connected);
  return connected ? Error{} : connected.error();
}

// Goal: connect() says which peer did not come, and succeeds when it does come; again is free.
// Method: let one side wait alone, then both.
TEST(ShmConnect, TimesOutAndRecovers) {
  ShmRank a(0), b(1);
  const Members members = {a.member, b.member};
  const auto first = a.join(members), second = b.join(members);
  const Error error = failure(*first, Rank{1});
  EXPECT_EQ(error.kind, ErrorKind::kTimedOut);
  EXPECT_NE(error.message.find("rank 1"), std::string::npos);
  const Rank zero[] = {Rank{0}};
  EXPECT_TRUE(second->connect(zero, Deadline::never()));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(first->connect(kPeer, Deadline::never()));
}

// Goal: a rank that does not exist or shares no memory is refused for that reason.
// Method: a table with a rank of another host and one without record.
TEST(ShmConnect, RefusesRanksItCannotReach) {
  ShmRank a(0), far(1), bare(2);
  far.member.host_id = "elsewhere";
  far.member.host = "far-host";
  bare.member.record.clear();
  const auto transport = a.join({a.member, far.member, bare.member});
  EXPECT_EQ(failure(*transport, Rank{7}).kind, ErrorKind::kInvalidArgument);
  EXPECT_EQ(failure(*transport, Rank{-1}).kind, ErrorKind::kInvalidArgument);
  const Error error = failure(*transport, Rank{1});
  EXPECT_EQ(error.kind, ErrorKind::kUnsupported);
  EXPECT_NE(error.message.find("far-host"), std::string::npos);
  EXPECT_EQ(failure(*transport, Rank{2}).kind, ErrorKind::kUnsupported);
  const auto without = ShmTransport::create(Rank{2}, {a.member, far.member, bare.member},
                                            *bare.memory, *bare.bell, {});
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().kind, ErrorKind::kUnsupported);
}

// Goal: a rank that was not there when the transports were made is added by its record alone, for
// as many as they were made for. Method: two ranks that talk; a third comes, then a fourth, for
// which there is no room, and one of another host.
TEST(ShmConnect, AddsAPeerThatComesLater) {
  const ShmTransport::Options roomy{.rank_count_max = 3, .host_rank_count_max = 3};
  ShmRank a(0), b(1), c(2), d(3);
  Members members = {a.member, b.member};
  std::vector<std::unique_ptr<ShmTransport>> made;
  made.push_back(a.join(members, roomy));
  made.push_back(b.join(members, roomy));
  const auto add = [&](std::size_t self, const Member& peer) {
    const auto added = made[self]->add_peer(peer, Deadline::after(kPatience));
    EXPECT_TRUE(added) << (added ? "" : added.error().message);
  };
  const auto exchange = [&](std::size_t from, std::size_t to) {
    std::vector<std::byte> source(300'000, std::byte{7}), target(source.size());
    Send send = send_to(static_cast<int>(to), 1, source.data(), source.size());
    Receive receive = receive_from(static_cast<int>(from), 1, target.data(), target.size());
    made[from]->post(send);
    made[to]->post(receive);
    for (int i = 0; i < 1000 && receive.state != TransferState::kDone; ++i) {
      (void)made[from]->progress();
      (void)made[to]->progress();
    }
    EXPECT_EQ(receive.state, TransferState::kDone);
    EXPECT_EQ(target, source);
  };
  std::thread second([&] { add(1, a.member); });
  add(0, b.member);
  second.join();
  exchange(0, 1);
  members.push_back(c.member);
  made.push_back(c.join(members, roomy));
  std::vector<std::thread> adding;
  for (const std::size_t old : {0, 1}) adding.emplace_back([&, old] { add(old, c.member); });
  add(2, a.member);
  add(2, b.member);
  for (std::thread& thread : adding) thread.join();
  exchange(0, 2);
  exchange(2, 1);
  const auto full = made[0]->add_peer(d.member, Deadline::after(kPatience));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, ErrorKind::kInvalidArgument);
  d.member.host_id = "elsewhere";
  EXPECT_EQ(made[0]->add_peer(d.member, Deadline::never()).error().kind, ErrorKind::kUnsupported);
}

// Goal: only registered memory is read in place, and only the library's can be registered.
// Method: what a receive that consumes is shown, before, while and after it is registered.
TEST(ShmConnect, ReadsRegisteredMemoryInPlace) {
  ShmRank a(0), b(1);
  const Members members = {a.member, b.member};
  const auto first = a.join(members, {}, false), second = b.join(members, {}, false);
  connect(*first, *second);
  constexpr std::size_t kBytes = 100'000;
  std::byte* const owned = *a.memory->allocate(Bytes{kBytes});
  std::uint32_t sequence = 0;
  // Of what is staged the send is done as soon as it is in the pipe.
  const auto is_staged = [&](const std::byte* source) {
    std::vector<std::byte> target(kBytes);
    Send send = send_to(1, ++sequence, source, kBytes);
    Receive receive = receive_from(0, sequence, target.data(), kBytes);
    first->post(send);
    (void)first->progress();
    const bool staged = send.state == TransferState::kDone;
    second->post(receive);
    for (int i = 0; i < 100; ++i) (void)second->progress(), (void)first->progress();
    EXPECT_EQ(receive.state, TransferState::kDone);
    return staged;
  };
  EXPECT_FALSE(first->capabilities().peer_memory);
  EXPECT_TRUE(is_staged(owned));
  const std::span<std::byte> half(owned, kBytes);
  EXPECT_TRUE(*first->register_memory(half));
  EXPECT_TRUE(first->capabilities().peer_memory);
  EXPECT_FALSE(is_staged(owned));
  EXPECT_TRUE(is_staged(owned + 64)) << "its end is not registered";
  first->release_memory(half);
  EXPECT_TRUE(is_staged(owned));
  std::vector<std::byte> foreign(kBytes);
  EXPECT_FALSE(*first->register_memory(foreign));
  EXPECT_TRUE(is_staged(foreign.data()));
}

// Goal: what the peer has just made it writes to the target itself, also where it has read nothing;
// what it had before is read by the receiver. Method: who moves the bytes, the other one waiting.
TEST(ShmConnect, WhoeverMadeTheBytesWritesThem) {
  ShmRank a(0), b(1);
  const Members members = {a.member, b.member};
  const auto first = a.join(members), second = b.join(members);
  connect(*first, *second);
  constexpr std::size_t kBytes = 100'000;
  std::byte* const source = *a.memory->allocate(Bytes{kBytes});
  std::byte* const target = *b.memory->allocate(Bytes{kBytes});
  std::uint32_t sequence = 0;
  for (const auto& [made, read] : {std::pair{false, false}, {true, false}, {true, true}}) {
    std::memset(source, static_cast<int>(sequence) + 1, kBytes);
    Send send = send_to(1, ++sequence, source, kBytes);
    Receive receive = receive_from(0, sequence, target, kBytes);
    receive.peer_has_made = made;
    receive.peer_has_read = read;
    std::memset(target, 0, kBytes);
    first->post(send);
    second->post(receive);
    (void)second->progress();
    EXPECT_EQ(receive.moved == Bytes{0}, made) << "read by the receiver";
    for (int i = 0; i < 100; ++i) (void)first->progress();
    EXPECT_EQ(receive.moved == Bytes{0}, made) << "written by the sender";
    EXPECT_TRUE(!made || std::memcmp(source, target, kBytes) == 0);
    for (int i = 0; i < 100; ++i) (void)second->progress(), (void)first->progress();
    EXPECT_EQ(receive.state, TransferState::kDone);
    EXPECT_EQ(send.state, TransferState::kDone);
    EXPECT_EQ(std::memcmp(source, target, kBytes), 0);
  }
}

// Goal: a wrong or stale entry is noticed before a byte is trusted.
// Method: break each part of a good entry in turn.
TEST(ShmConnect, ChecksWhatItMaps) {
  ShmRank a(0), b(1);
  const int unsealed = ::memfd_create("unsealed", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(unsealed, static_cast<off_t>(b.memory->reserved().value())), 0);
  const std::string room = ":" + std::to_string(b.memory->room().value());
  const std::string bytes = std::to_string(b.memory->file_bytes().value()) + room;
  const std::string fd = std::to_string(b.memory->fd());
  const std::string pid = std::to_string(::getpid());
  const std::pair<const char*, std::string> broken[] = {
      {"shm.memory", "nonsense"},
      {"shm.memory", pid + ":" + fd + ":4096" + room},
      {"shm.memory", pid + ":99999:" + bytes},
      {"shm.memory", "999999999:" + fd + ":" + bytes},
      {"shm.memory", pid + ":" + std::to_string(a.memory->fd()) + ":" + bytes},
      {"shm.memory", pid + ":" + std::to_string(unsealed) + ":" + bytes},
      {"shm.token", "1"},
      {"shm.layout", "0"},
      {"shm.layout", ""},
      {"shm.doorbell", "no such bell"}};
  for (const auto& [entry, value] : broken) {
    SCOPED_TRACE(value);
    ShmRank self(0);
    Member member = b.member;
    member.record[entry] = value;
    const auto transport = self.join({self.member, member});
    const Error error = failure(*transport, Rank{1});
    EXPECT_EQ(error.kind, ErrorKind::kUnsupported);
    EXPECT_NE(error.message.find("rank 1"), std::string::npos);
  }
  ::close(unsealed);
}

// Goal: all ranks of a host map the same share of each memory if one of them has no room for all.
// Method: record of ranks with and without limits, with memories of other sizes, on another host.
TEST(ShmConnect, SharesAddressSpace) {
  constexpr unsigned long long kGiB = std::size_t{1} << 30, kNone = ~0ULL;
  const auto most = [](std::vector<std::pair<unsigned long long, unsigned long long>> record) {
    Members members;
    for (const auto& [bytes, room] : record) {
      Member member{Rank{static_cast<int>(members.size())}, 0, "", "here", 1, {}};
      member.record["shm.memory"] = shm::MemoryEntry{1, 2, bytes, room}.text();
      members.push_back(member);
    }
    members.push_back(members.back());
    members.back().host_id = "elsewhere";
    members.back().record["shm.memory"] = shm::MemoryEntry{1, 2, kGiB, kGiB}.text();
    return shm::mapped_max(members, "here").value();
  };
  EXPECT_EQ(most({{64 * kGiB, kNone}, {64 * kGiB, kNone}}), kNone);
  EXPECT_EQ(most({{kGiB, 3 * kGiB}, {kGiB, 4 * kGiB}}), kNone) << "they fit";
  EXPECT_EQ(most({{64 * kGiB, kNone}, {4 * kGiB, 8 * kGiB}}), 2 * kGiB);
  EXPECT_EQ(most({{4 * kGiB, 8 * kGiB}, {4 * kGiB, 16 * kGiB}, {4 * kGiB, 6 * kGiB}}), kGiB);
}

// Goal: stores are as cheap as an asymmetric fence makes them only if all ranks of the host have
// it. Method: a peer with the entry, then one without.
TEST(ShmConnect, AgreesOnTheFence) {
  const bool able = AsymmetricFence::enable();
  ShmRank a(0), b(1);
  const auto both = a.join({a.member, b.member});
  EXPECT_EQ(AsymmetricFence::enabled(), able);
  Member without = b.member;
  without.record.erase("shm.fence");
  ShmRank other(0);
  const auto one = other.join({other.member, without});
  EXPECT_FALSE(AsymmetricFence::enabled());
}

// Goal: a peer that fails while this rank waits for it ends the wait with its name.
// Method: another thread reports the failure while connect() waits without a deadline.
TEST(ShmConnect, PeerFailureEndsTheWait) {
  ShmRank a(0), b(1);
  const auto transport = a.join({a.member, b.member});
  std::thread control([&] { transport->peer_failed(Rank{1}); });
  const auto connected = transport->connect(kPeer, Deadline::never());
  control.join();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().kind, ErrorKind::kRankFailed);
  ASSERT_TRUE(connected.error().culprit);
  EXPECT_EQ(connected.error().culprit->rank, 1);
  EXPECT_EQ(connected.error().culprit->host, "here");
  EXPECT_EQ(connected.error().culprit->pid, ::getpid());
}

// Goal: a peer that left on purpose before it connected ends the wait, too.
// Method: it leaves while connect() waits without a deadline.
TEST(ShmConnect, APeerThatLeftEndsTheWait) {
  ShmRank a(0), b(1);
  const auto transport = a.join({a.member, b.member});
  std::thread control([&] { transport->peer_left(Rank{1}); });
  const auto connected = transport->connect(kPeer, Deadline::never());
  control.join();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().kind, ErrorKind::kRankFailed);
  EXPECT_NE(connected.error().message.find("rank 1 left"), std::string::npos);
}

// Goal: what a peer sent before it left on purpose arrives, even if this rank hears that it left
// before it is connected itself.
// Method: the peer connects, since this rank has offered its half; sends; leaves; and only then
// this rank looks whether the peer's half is there.
TEST(ShmConnect, APeerThatLeftHasSentWhatItSent) {
  ShmRank a(0), b(1);
  const auto here = a.join({a.member, b.member}), there = b.join({a.member, b.member});
  const Rank first[] = {Rank{0}};
  ASSERT_FALSE(here->connect(kPeer, Deadline::after(std::chrono::milliseconds(1))));
  ASSERT_TRUE(there->connect(first, Deadline::after(kPatience)));
  std::byte sent[24], received[24] = {};
  std::fill(std::begin(sent), std::end(sent), std::byte{7});
  Send send;
  send.peer = Rank{0};
  send.bytes = Bytes{sizeof(sent)};
  send.source = sent;
  there->post(send);
  here->peer_left(Rank{1});
  ASSERT_TRUE(here->connect(kPeer, Deadline::after(kPatience)));
  Receive receive;
  receive.peer = Rank{1};
  receive.bytes = Bytes{sizeof(received)};
  receive.target = received;
  here->post(receive);
  for (int i = 0; i < 100 && receive.state == TransferState::kActive; ++i) here->progress();
  EXPECT_EQ(receive.state, TransferState::kDone);
  EXPECT_EQ(received[23], std::byte{7});
}

// Goal: a rank may also talk to itself, and posting to a rank that is not connected fails.
// Method: one rank, small and large messages to itself.
TEST(ShmConnect, SelfAndStrangers) {
  ShmRank a(0), b(1);
  const auto transport = a.join({a.member, b.member});
  const Rank self[] = {Rank{0}};
  ASSERT_TRUE(transport->connect(self, Deadline::never()));
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{100'000}}) {
    std::vector<std::byte> out(bytes, std::byte{7}), in(bytes);
    Send send = send_to(0, 1, out.data(), bytes);
    Receive receive = receive_from(0, 1, in.data(), bytes);
    transport->post(receive);
    transport->post(send);
    while (transport->progress()) {
    }
    EXPECT_EQ(send.state, TransferState::kDone);
    EXPECT_EQ(receive.state, TransferState::kDone);
    EXPECT_EQ(in, out);
  }
  std::byte byte{};
  for (const int peer : {1, 9}) {
    Send send = send_to(peer, 1, &byte, 1);
    Receive receive = receive_from(peer, 1, &byte, 1);
    transport->post(send);
    transport->post(receive);
    EXPECT_EQ(send.state, TransferState::kFailed);
    EXPECT_EQ(receive.state, TransferState::kFailed);
  }
}

}  // namespace
}  // namespace farandole
