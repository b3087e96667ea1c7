// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/operation.hpp"

namespace farandole {

/// Set in the communicator number of point-to-point messages; communicators have smaller numbers.
inline constexpr std::uint32_t kPointToPoint = std::uint32_t{1} << 31;

/// The id of the `number`-th message from one rank of a group to another; both ends compute the
/// same one. All messages that one rank sends or receives have different ids, so that ending one
/// ends no other. After 2^31 / size messages in one direction the ids repeat.
OperationId message_id(const Group& group, Rank from, Rank to, std::uint32_t number);

/// One message of a batch, to or from another rank.
struct MessageSpec {
  bool sends = false;
  Rank peer;                  // in the group
  std::byte* data = nullptr;  // only read if `sends`
  Bytes bytes;
  std::uint32_t number = 0;  // counts the messages of this direction between the two ranks
  Signature signature;
};

/// A copy within this process: a message that a rank sends to itself.
struct CopySpec {
  std::byte* target;
  const std::byte* source;
  Bytes bytes;
};

struct BatchSpec {
  OperationTerms terms;
  std::vector<MessageSpec> messages;
  std::vector<CopySpec> copies;
};

/// Sends and receives that run concurrently; each finishes with its own message. A message of the
/// wrong length or type fails the batch once all its other messages have ended; no other batch is
/// affected.
class BatchOperation final : public Operation {
 public:
  explicit BatchOperation(BatchSpec spec);

  void disagreed(Error error) override;
  void withdraw(FinalState& words) const override;
  std::optional<Rank> lost_peer() const override;
  bool done_by(Rank world_rank, const FinalState& final_state) const override;
  std::string description() const override;
  std::string state() const override;

 private:
  struct Entry {
    Send send;
    Receive receive;
    bool open = true;
  };
  const Transfer& transfer(std::size_t i) const {
    return spec_.messages[i].sends ? static_cast<const Transfer&>(entries_[i].send)
                                   : entries_[i].receive;
  }
  Transport& transport(std::size_t i) const {
    return *group().transports[static_cast<std::size_t>(spec_.messages[i].peer.value())];
  }

  bool begin() override;
  bool advance() override;
  bool cancel() override;
  std::uint64_t progress() const override { return 0; }  // makes no claims
  void close(std::size_t i);

  const BatchSpec spec_;        // without its terms, see terms()
  std::vector<Entry> entries_;  // [messages]
  std::size_t open_count_ = 0;
  std::size_t disagreeing_ = 0;  // the message of disagreement()
};

}  // namespace farandole
