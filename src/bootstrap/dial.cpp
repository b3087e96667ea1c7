// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/dial.hpp"

#include <cerrno>
#include <utility>

#include "bootstrap/descriptor_limit.hpp"
#include "bootstrap/secret.hpp"

namespace farandole {

Dial::Dial(const Address& address, const Secret& secret, Identity identity, Deadline deadline)
    : deadline_(deadline) {
  auto nonce = random_bytes(kNonceBytes);
  Descriptor socket = start_connecting(address);
  if (!socket || !nonce) {
    outcome_ = out_of_descriptors(errno) ? Outcome::kNoSocket
               : errno == ECONNREFUSED   ? Outcome::kRefused
                                         : Outcome::kUnreachable;
    return;
  }
  channel_.emplace(std::move(socket));
  handshake_.emplace(secret, *std::move(nonce), std::move(identity));
}

void Dial::watch(PollSet& set) {
  if (outcome_ != Outcome::kWorking) return set.wake_by(Clock::now());
  set.wake_by(deadline_.when());
  if (connected_) return channel_->watch(set);
  slot_ = set.add(channel_->fd(), POLLOUT);
}

void Dial::serve(const PollSet& set) {
  if (outcome_ != Outcome::kWorking) return;
  if (!connected_ && set.ready(slot_) != 0) {
    settle_connection();
  } else if (connected_ && channel_->ready(set) != 0) {
    converse();
  }
  if (outcome_ == Outcome::kWorking && deadline_.passed()) outcome_ = Outcome::kUnreachable;
}

void Dial::settle_connection() {
  const int error = connection_error(channel_->fd());
  if (error == EINPROGRESS) return;
  if (error != 0) {
    outcome_ = error == ECONNREFUSED ? Outcome::kRefused : Outcome::kUnreachable;
    return;
  }
  connected_ = true;
  channel_->send(handshake_->take_output());
}

void Dial::converse() {
  channel_->flush();
  while (handshake_->state() == Handshake::State::kWorking) {
    const std::string bytes = channel_->read(handshake_->wanted());
    if (bytes.empty()) break;
    handshake_->feed(bytes);
    channel_->send(handshake_->take_output());
  }
  if (handshake_->state() == Handshake::State::kDone) {
    outcome_ = Outcome::kAnswered;
  } else if (handshake_->state() == Handshake::State::kFailed) {
    outcome_ = Outcome::kOfAnotherJob;
  } else if (channel_->ended()) {
    outcome_ = Outcome::kUnreachable;  // died just now, or was too busy
  }
}

}  // namespace farandole
