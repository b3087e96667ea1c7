// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "bootstrap/member.hpp"
#include "device/cpu/memory.hpp"
#include "transport/doorbell.hpp"
#include "transport/shm/shm_transport.hpp"

namespace farandole {

/// What a rank has before its transport: memory, a bell and its entry in the table of members.
struct ShmRank {
  explicit ShmRank(int rank) {
    auto made = Memory::create(Bytes{std::size_t{1} << 30});
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    memory = *std::move(made);
    auto ring = Doorbell::create(Doorbell::word_in(*memory));
    EXPECT_TRUE(ring) << (ring ? "" : ring.error().message);
    bell = *std::move(ring);
    auto record = ShmTransport::record(*memory, *bell);
    EXPECT_TRUE(record) << (record ? "" : record.error().message);
    member = Member{.rank = Rank{rank},
                    .local_rank = rank,
                    .host = "here",
                    .host_id = "here",
                    .pid = ::getpid(),
                    .record = *std::move(record)};
  }
  /// `registers`: peers read this rank's library-owned memory in place.
  std::unique_ptr<ShmTransport> join(const Members& members, ShmTransport::Options options = {},
                                     bool registers = true) {
    auto made = ShmTransport::create(member.rank, members, *memory, *bell, std::move(options));
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    if (registers) {
      EXPECT_TRUE(*(*made)->register_memory({memory->base(), memory->reserved().value()}));
    }
    return *std::move(made);
  }
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Doorbell> bell;
  Member member;
};

/// Connects ranks 0 and 1, which wait for each other.
inline void connect(ShmTransport& first, ShmTransport& second) {
  const Rank zero[] = {Rank{0}}, one[] = {Rank{1}};
  std::thread other([&] { EXPECT_TRUE(second.connect(zero, Deadline::never())); });
  EXPECT_TRUE(first.connect(one, Deadline::never()));
  other.join();
}

inline Send send_to(int peer, std::uint32_t sequence, const std::byte* source, std::size_t bytes) {
  Send send;
  send.peer = Rank{peer};
  send.tag = Tag{{1, sequence}, 0};
  send.bytes = Bytes{bytes};
  send.source = source;
  return send;
}

inline Receive receive_from(int peer, std::uint32_t sequence, std::byte* target,
                            std::size_t bytes) {
  Receive receive;
  receive.peer = Rank{peer};
  receive.tag = Tag{{1, sequence}, 0};
  receive.bytes = Bytes{bytes};
  receive.target = target;
  return receive;
}

}  // namespace farandole
