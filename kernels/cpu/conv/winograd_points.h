/* The six points of F(4, 3) and F(2, 5) along one dimension: 0, p, -p, q, -q and infinity with p = 5/8 and q = 3/2.
 *
 * Lavin and Gray's 1 and 2 round twice as coarsely; these have matrices without rounding, but for G. By interpolation,
 * as in Barabasz et al., arXiv:1803.10986:
 *     B' = {ppqq 0 -(pp + qq) 0 1 0; 0 -pqq -qq p 1 0; 0 pqq -qq -p 1 0; 0 -ppq -pp q 1 0; 0 ppq -pp -q 1 0;
 *           0 ppqq 0 -(pp + qq) 0 1}
 *     G  = {1/ppqq 0 0; n(1 p pp); n(1 -p pp); f(1 q qq); f(1 -q qq); 0 0 1},
 *          n = 1/(2pp (pp - qq)), f = 1/(2qq (qq - pp))
 *     A' = {1 1 1 1 1 0; 0 p -p q -q 0; 0 pp pp qq qq 0; 0 ppp -ppp qqq -qqq 1}
 * For five taps, rows of G go on with ppp and pppp, and A' ends with {0 p -p q -q 1}. */
#pragma once

#define NEAR 0.625f                                                    /* p */
#define FAR 1.5f                                                       /* q */
#define NEAR_SCALE (1 / (2 * NEAR * NEAR * (NEAR * NEAR - FAR * FAR))) /* n */
#define FAR_SCALE (1 / (2 * FAR * FAR * (FAR * FAR - NEAR * NEAR)))    /* f */
