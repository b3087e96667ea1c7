// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/input.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

namespace farandole::tcp {
namespace {

constexpr std::size_t kBufferBytes = 640 << 10;  // an early head is kept until it is complete
constexpr std::size_t kStreamBytes = 256 << 10;  // read at a time if consumed from the buffer
constexpr std::size_t kReadBytesMax = 1 << 20;   // per read()
// Between payloads, ask for little: payload bytes that reach the buffer must be copied once more.
constexpr std::size_t kFramesBytes = kFrameBytes + (16 << 10);
static_assert(kBufferBytes >= kFrameBytes + kHeadBytesMax);

std::ptrdiff_t receive_from(int fd, std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  std::ptrdiff_t got;
  do {
    got = parts.size() == 1 ? ::recv(fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT)
                            : ::recvmsg(fd, &message, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  return got;
}

}  // namespace

Input::Input() : buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

Input::Outcome Input::read(int fd, InputHandler& handler) {
  Outcome outcome;
  while (outcome.bytes < kReadBytesMax) {
    const Pull pulled = pull(fd, handler);
    if (pulled.got <= 0) {
      outcome.lost = pulled.got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
      return outcome;
    }
    outcome.bytes += static_cast<std::size_t>(pulled.got);
    if (!parse(handler)) {
      outcome.corrupt = true;
      return outcome;
    }
    // Less than asked for: the socket is empty now, so skip the system call that would say so.
    if (static_cast<std::size_t>(pulled.got) < pulled.asked) return outcome;
  }
  return outcome;
}

Input::Pull Input::pull(int fd, InputHandler& handler) {
  if (stream_.remaining > 0) {
    Receive* receive = handler.receive_of(stream_.id);
    if (receive != nullptr && receive->consume == nullptr) return pull_into(fd, *receive, handler);
  }
  std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
  end_ = buffered();
  begin_ = 0;
  const std::size_t room = kBufferBytes - end_;
  const std::size_t wanted =
      stream_.remaining > 0 ? kStreamBytes : std::max(missing_, kFramesBytes);
  iovec part{buffer_.get() + end_, std::min(room, wanted)};
  const Pull pulled{part.iov_len, receive_from(fd, {&part, 1})};
  if (pulled.got > 0) end_ += static_cast<std::size_t>(pulled.got);
  return pulled;
}

// parse() has emptied the buffer before. The same call also reads the header of the next frame, and
// no more than that, so that the payload after it can be read straight to its target as well.
Input::Pull Input::pull_into(int fd, Receive& receive, InputHandler& handler) {
  iovec parts[2] = {{receive.target + stream_.offset, stream_.remaining},
                    {buffer_.get(), kFrameBytes}};
  const Pull pulled{stream_.remaining + kFrameBytes, receive_from(fd, parts)};
  if (pulled.got <= 0) return pulled;
  const std::size_t direct = std::min(static_cast<std::size_t>(pulled.got), stream_.remaining);
  begin_ = 0;
  end_ = static_cast<std::size_t>(pulled.got) - direct;
  const std::uint64_t id = stream_.id;
  advance(direct);
  handler.delivered(id, Bytes{direct});
  return pulled;
}

bool Input::parse(InputHandler& handler) {
  for (bool complete = true; complete;) {
    if (stream_.remaining > 0) {
      complete = stream_from_buffer(handler);
    } else if (!parse_frame(handler, complete)) {
      return false;
    }
  }
  return true;
}

// Takes one frame from the buffer, or sets `complete` to false if it has not arrived yet.
bool Input::parse_frame(InputHandler& handler, bool& complete) {
  complete = false;
  if (buffered() < kFrameBytes) return true;
  const std::byte* header = buffer_.get() + begin_;
  const auto frame = decode(std::span<const std::byte, kFrameBytes>(header, kFrameBytes));
  if (!frame) return false;
  const bool data = frame->kind == FrameKind::kData;
  const std::size_t needed = kFrameBytes + (data ? 0 : frame->payload);
  if (buffered() < needed) {
    const auto id = handler.on_head(*frame);
    missing_ = id ? 0 : needed - buffered();
    if (!id) return true;
    complete = true;
    begin_ += kFrameBytes;
    stream_ = Stream{*id, 0, frame->payload};
    return true;
  }
  missing_ = 0;
  complete = true;
  begin_ += needed;
  switch (frame->kind) {
    case FrameKind::kMessage:
      return handler.on_message(*frame, header + kFrameBytes);
    case FrameKind::kReady:
    case FrameKind::kRefuse:
      return handler.on_answer(*frame);
    case FrameKind::kData: {
      // A frame whose id is not alive now stays dropped, even if the id comes alive later.
      const InputHandler::DataFate fate = handler.on_data(*frame);
      const bool taken = fate == InputHandler::DataFate::kTaken;
      stream_ = Stream{taken ? frame->id : 0, frame->offset, frame->payload};
      return fate != InputHandler::DataFate::kCorrupt;
    }
  }
  return false;
}

// Delivers what the buffer has of the payload that is being read; true once the payload is
// complete. A piece for `consume` that is not the last ends on a multiple of the alignment; the odd
// bytes are left for the next one.
bool Input::stream_from_buffer(InputHandler& handler) {
  Receive* receive = handler.receive_of(stream_.id);
  std::size_t bytes = std::min(stream_.remaining, buffered());
  if (receive != nullptr && bytes < stream_.remaining) {
    bytes -= receive->consume != nullptr ? bytes % Receive::kPieceAlignment : 0;
  }
  if (bytes == 0) return false;
  const std::uint64_t id = stream_.id;
  if (receive != nullptr) {
    receive->deliver(Bytes{stream_.offset}, buffer_.get() + begin_, Bytes{bytes});
  }
  begin_ += bytes;
  advance(bytes);
  if (receive != nullptr) handler.delivered(id, Bytes{bytes});
  return stream_.remaining == 0;
}

void Input::advance(std::size_t bytes) {
  stream_.offset += bytes;
  stream_.remaining -= bytes;
}

}  // namespace farandole::tcp
