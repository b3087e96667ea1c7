// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/clock.hpp"
#include "bootstrap/channel.hpp"
#include "bootstrap/handshake.hpp"

namespace farandole {

/// One attempt to connect to a listener and to prove membership, without blocking.
///
/// Threads   one at a time.
class Dial {
 public:
  enum class Outcome : std::uint8_t {
    kWorking,
    kAnswered,      // verdict() has the answer; after kWelcome take() gives the socket
    kRefused,       // nobody listens there
    kUnreachable,   // no connection or no answer in time
    kOfAnotherJob,  // the listener does not know the secret
    kNoSocket,      // this process can open no socket
  };

  Dial(const Address& address, const Secret& secret, Identity identity, Deadline deadline);
  void watch(PollSet& set);
  void serve(const PollSet& set);

  Outcome outcome() const { return outcome_; }
  Verdict verdict() const { return handshake_->verdict(); }
  /// Whether it was answered with `verdict`.
  bool answered(Verdict verdict) const {
    return outcome_ == Outcome::kAnswered && handshake_->verdict() == verdict;
  }
  Descriptor take() { return channel_->take(); }

 private:
  void settle_connection();
  void converse();

  Deadline deadline_;
  Outcome outcome_ = Outcome::kWorking;
  bool connected_ = false;
  std::size_t slot_ = PollSet::kNoSlot;
  std::optional<Channel> channel_;
  std::optional<ClientHandshake> handshake_;
};

}  // namespace farandole
