// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "transport/shm/layout.hpp"
#include "unit/transport/shm/ranks.hpp"

namespace farandole {
namespace {

using namespace shm;

/// Rank 0 is ours; rank 1 is connected, and then the test writes into its memory by hand.
class CorruptPeer : public testing::Test {
 protected:
  void SetUp() override {
    const Members members = {ours_.member, theirs_.member};
    transport_ = ours_.join(members, {.all_memory = true});
    peer_ = theirs_.join(members, {.all_memory = true});
    connect(*transport_, *peer_);
  }

  template <class T>
  T* in_theirs(std::uint64_t offset) {
    return reinterpret_cast<T*>(theirs_.memory->base() + offset);
  }
  Entry& entry(std::uint64_t index) {
    return in_theirs<Entry>(in_theirs<Header>(0)->entries)[index];
  }

  /// The peer's next message to rank 0, with a payload of 16 bytes of `words`.
  void write(Kind kind, std::uint64_t bytes, std::uint64_t first, std::uint64_t second) {
    Ring& ring = in_theirs<Ring>(in_theirs<Header>(0)->rings)[0];
    Slot& slot = *in_theirs<Slot>(ring.lines);
    slot.kind = kind;
    slot.tag = Tag{{1, 1}, 0};
    slot.bytes = bytes;
    slot.signature = Signature{};
    const std::uint64_t words[2] = {first, second};
    std::memcpy(slot.brief, words, sizeof(words));
    publish(slot.mark, mark_of(0, in_theirs<Header>(0)->token));
  }

  /// A receive of `bytes` that meets the message fails, and its peer with it.
  void expect_peer_fails(std::size_t bytes) {
    std::vector<std::byte> target(bytes);
    Receive receive = receive_from(1, 1, target.data(), bytes);
    transport_->post(receive);
    for (int i = 0; i < 10; ++i) (void)transport_->progress();
    EXPECT_EQ(receive.state, TransferState::kFailed);
    EXPECT_EQ(receive.error, ErrorKind::kRankFailed);
  }

  static constexpr std::size_t kLarge = 100'000;
  ShmRank ours_{0}, theirs_{1};
  std::unique_ptr<ShmTransport> transport_, peer_;
};

// Goal: nothing that a peer writes makes this rank read out of bounds; the peer counts as failed.
// Method: one impossible value at a time, in every field that is used as a size or an index.
TEST_F(CorruptPeer, EagerMessageLongerThanASlot) {
  write(Kind::kEager, kLarge, 0, 0);
  expect_peer_fails(kLarge);
}
TEST_F(CorruptPeer, UnknownKind) {
  write(Kind{17}, 8, 0, 0);
  expect_peer_fails(8);
}
TEST_F(CorruptPeer, EntryOutOfRange) {
  write(Kind::kAnnouncement, kLarge, Announcement::kStaged, kEntryCount);
  expect_peer_fails(kLarge);
}
TEST_F(CorruptPeer, EntryOutOfRangeWithGoodSource) {
  write(Kind::kAnnouncement, kLarge, 0, kEntryCount * 1000);
  expect_peer_fails(kLarge);
}
TEST_F(CorruptPeer, EntryThatWraps) {
  write(Kind::kAnnouncement, kLarge, Announcement::kStaged, std::uint64_t{0xffffffff});
  expect_peer_fails(kLarge);
}
TEST_F(CorruptPeer, SourceBeyondTheMemory) {
  write(Kind::kAnnouncement, kLarge, theirs_.memory->reserved().value() - kLarge + 1, 0);
  expect_peer_fails(kLarge);
}
TEST_F(CorruptPeer, SourceThatWraps) {
  write(Kind::kAnnouncement, kLarge, ~std::uint64_t{0} - 100, 0);
  expect_peer_fails(kLarge);
}
TEST_F(CorruptPeer, PipeBeyondTheMemory) {
  entry(5).produced = 1;
  entry(5).capacity = pipe_bytes(2, 0);
  entry(5).pipe = theirs_.memory->reserved().value() - pipe_bytes(2, 0) + 64;
  write(Kind::kAnnouncement, kLarge, Announcement::kStaged, 5);
  expect_peer_fails(kLarge);
}
TEST_F(CorruptPeer, PipeWithoutRoomForABlock) {
  entry(5).produced = 1;
  entry(5).capacity = block_bytes(kLarge) - 1;
  entry(5).pipe = Memory::kHeaderBytes;
  write(Kind::kAnnouncement, kLarge, Announcement::kStaged, 5);
  expect_peer_fails(kLarge);
}
TEST_F(CorruptPeer, PipeThatWraps) {
  entry(5).produced = 1;
  entry(5).capacity = ~std::uint64_t{0} - 100;
  entry(5).pipe = Memory::kHeaderBytes;
  write(Kind::kAnnouncement, kLarge, Announcement::kStaged, 5);
  expect_peer_fails(kLarge);
}
TEST_F(CorruptPeer, EarlyAnnouncementOfABadEntry) {
  write(Kind::kAnnouncement, kLarge, Announcement::kStaged, kEntryCount + 3);
  for (int i = 0; i < 3; ++i) (void)transport_->progress();
  expect_peer_fails(kLarge);
}
TEST_F(CorruptPeer, DiscardedAnnouncementOfABadEntry) {
  EXPECT_TRUE(transport_->cancel({1, 1}));
  write(Kind::kAnnouncement, kLarge, Announcement::kStaged, kEntryCount);
  (void)transport_->progress();
  Receive receive = receive_from(1, 2, nullptr, 0);
  transport_->post(receive);
  EXPECT_EQ(receive.error, ErrorKind::kRankFailed);
}

TEST_F(CorruptPeer, PrivateSourceThatIsNotThere) {
  entry(0).available = kLarge;
  write(Kind::kAnnouncement, kLarge, kPrivate | 4096, 0);
  expect_peer_fails(kLarge);
}

// Goal: as for sources, of a receiver that has this rank write its target.
TEST_F(CorruptPeer, PrivateTargetThatIsNotThere) {
  std::vector<std::byte> source(kLarge);
  Send send = send_to(1, 1, source.data(), kLarge);
  transport_->post(send);
  const auto* header = reinterpret_cast<const Header*>(ours_.memory->base());
  auto* entries = reinterpret_cast<Entry*>(ours_.memory->base() + header->entries);
  entries[0].target = kPrivate | 4096;
  publish(entries[0].reply, Reply::kShare);
  for (int i = 0; i < 10; ++i) (void)transport_->progress();
  EXPECT_EQ(send.state, TransferState::kFailed);
  EXPECT_EQ(send.error, ErrorKind::kRankFailed);
}

// Goal: a receiver cannot make this rank write beside what it shares.
// Method: it claims to have taken more pieces than there are, and that this rank has.
TEST_F(CorruptPeer, ClaimsRunAhead) {
  std::vector<std::byte> source(kLarge, std::byte{1}), target(kLarge);
  for (const int claim : {0x7f, 0x80, 0xff}) {
    Send send = send_to(1, static_cast<std::uint32_t>(claim), source.data(), kLarge);
    transport_->post(send);
    const auto* header = reinterpret_cast<const Header*>(ours_.memory->base());
    auto* entries = reinterpret_cast<Entry*>(ours_.memory->base() + header->entries);
    entries[0].target = reinterpret_cast<std::uint64_t>(target.data()) | kPrivate;
    std::memset(static_cast<void*>(&entries[0].claims), claim, sizeof(Claims));
    publish(entries[0].reply, Reply::kShare);
    for (int i = 0; i < 10; ++i) (void)transport_->progress();
    EXPECT_EQ(std::ranges::count(target, std::byte{}), static_cast<std::ptrdiff_t>(kLarge));
    EXPECT_EQ(send.state, TransferState::kActive);
    publish(entries[0].reply, Reply::kFinished);
    (void)transport_->progress();
    EXPECT_EQ(send.state, TransferState::kDone);
  }
}

// Goal: a receiver that wants its target written makes this rank write only what is the receiver's.
TEST_F(CorruptPeer, TargetBeyondTheMemory) {
  std::byte* source = *ours_.memory->allocate(Bytes{kLarge});
  Send send = send_to(1, 1, source, kLarge);
  transport_->post(send);
  const auto* header = reinterpret_cast<const Header*>(ours_.memory->base());
  auto* entries = reinterpret_cast<Entry*>(ours_.memory->base() + header->entries);
  entries[0].target = theirs_.memory->reserved().value() - kLarge + 1;
  publish(entries[0].reply, Reply::kPut);
  for (int i = 0; i < 10; ++i) (void)transport_->progress();
  EXPECT_EQ(send.state, TransferState::kFailed);
  EXPECT_EQ(send.error, ErrorKind::kRankFailed);
}

// Goal: a send does not count as done without its bytes, whatever the peer says of its caches.
TEST_F(CorruptPeer, LinesOfNobodyKnown) {
  std::byte* source = *ours_.memory->allocate(Bytes{kLarge});
  std::byte* target = *theirs_.memory->allocate(Bytes{kLarge});
  std::memset(source, 7, kLarge);
  Send send = send_to(1, 1, source, kLarge);
  transport_->post(send);
  const auto* header = reinterpret_cast<const Header*>(ours_.memory->base());
  auto* entries = reinterpret_cast<Entry*>(ours_.memory->base() + header->entries);
  entries[0].target = static_cast<std::uint64_t>(target - theirs_.memory->base());
  entries[0].lines = static_cast<TargetLines>(99);
  publish(entries[0].reply, Reply::kPut);
  for (int i = 0; i < 10; ++i) (void)transport_->progress();
  EXPECT_EQ(send.moved, Bytes{kLarge});
  EXPECT_EQ(std::memcmp(source, target, kLarge), 0);
}

// Goal: counters that run ahead make no send write where it must not.
// Method: the reader of our ring claims to have consumed more than was ever written; what it
// had not read may be lost to it, but this rank goes on and finishes its sends.
TEST_F(CorruptPeer, ConsumedRunsAhead) {
  auto* header = reinterpret_cast<Header*>(ours_.memory->header());
  Ring& ring = reinterpret_cast<Ring*>(ours_.memory->base() + header->rings)[1];
  ring.consumed = ~std::uint64_t{0};
  std::byte byte{};
  for (int i = 0; i < 1000; ++i) {
    Send send = send_to(1, 1, &byte, 1);
    transport_->post(send);
    EXPECT_EQ(send.state, TransferState::kDone);
  }
}

}  // namespace
}  // namespace farandole
