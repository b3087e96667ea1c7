// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/output.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

namespace farandole::tcp {
namespace {

// Appends `bytes` at `data` without the first `skip`, and lowers `skip` by what it left out.
void append(iovec* parts, std::size_t& count, const std::byte* data, std::size_t bytes,
            std::size_t& skip) {
  const std::size_t covered = std::min(skip, bytes);
  skip -= covered;
  if (bytes == covered) return;
  parts[count++] = iovec{const_cast<std::byte*>(data) + covered, bytes - covered};
}

// Up to this many bytes, copying them together here is faster than having the kernel gather them.
constexpr std::size_t kGatheredBytesMax = 2048;

std::ptrdiff_t send_to(int fd, std::span<iovec> parts) {
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  std::size_t bytes = 0;
  for (const iovec& part : parts) bytes += part.iov_len;
  if (bytes <= kGatheredBytesMax) {
    std::array<std::byte, kGatheredBytesMax> gathered;
    std::byte* end = gathered.data();
    for (const iovec& part : parts) {
      end = std::copy_n(static_cast<const std::byte*>(part.iov_base), part.iov_len, end);
    }
    return ::send(fd, gathered.data(), bytes, kFlags);
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return ::sendmsg(fd, &message, kFlags);
}

}  // namespace

Output::Output() : storage_(std::make_unique<std::array<Item, kFramesMax>>()), items_(*storage_) {}

void Output::push(const Frame& frame, const std::byte* payload, Send* send) {
  Item& item = at(count_++);
  item.header = encode(frame);
  item.header_bytes = kFrameBytes;
  item.payload = payload;
  item.payload_bytes = frame.payload;
  item.send = send;
  item.segment = frame.kind == FrameKind::kData;
  segment_count_ += item.segment ? 1 : 0;
}

Output::Outcome Output::flush(int fd, OutputHandler& handler) {
  std::array<iovec, 2 * kFramesMax> parts;
  std::size_t part_count = 0;
  std::size_t skip = written_;
  for (std::size_t i = 0; i < count_; ++i) {
    const Item& item = at(i);
    append(parts.data(), part_count, item.header.data(), item.header_bytes, skip);
    append(parts.data(), part_count, item.payload, item.payload_bytes, skip);
  }
  std::ptrdiff_t sent = 0;
  if (part_count > 0) {
    do {
      sent = send_to(fd, {parts.data(), part_count});
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) return Outcome{0, errno != EAGAIN && errno != EWOULDBLOCK};
  }
  take(static_cast<std::size_t>(sent), handler);
  return Outcome{static_cast<std::size_t>(sent), false};
}

// Removes the frames that the kernel has in full, and empty ones, which cut() has left.
void Output::take(std::size_t bytes, OutputHandler& handler) {
  written_ += bytes;
  while (count_ > 0 && written_ >= at(0).bytes()) {
    Item& item = at(0);
    written_ -= item.bytes();
    Send* const send = item.send;
    const Bytes payload{item.payload_bytes};
    item.send = nullptr;
    segment_count_ -= item.segment ? 1 : 0;
    first_ = (first_ + 1) % kFramesMax;
    --count_;
    if (send != nullptr) handler.handed_over(*send, payload);
  }
}

void Output::cut(Item& item) {
  item.send = nullptr;
  if (&item != &at(0) || written_ == 0) {
    item.header_bytes = 0;
    item.payload_bytes = 0;
    return;
  }
  rest_ = std::make_unique_for_overwrite<std::byte[]>(item.payload_bytes);
  std::memcpy(rest_.get(), item.payload, item.payload_bytes);
  item.payload = rest_.get();
}

}  // namespace farandole::tcp
