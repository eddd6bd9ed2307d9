/* How far convolutions and batch norms are joined on a device; towers/graph/fuse.h defines the levels. */
#pragma once

typedef enum FuseLevel { FUSE_AUTO = 0, FUSE_II, FUSE_II_S, FUSE_III_H } FuseLevel;
